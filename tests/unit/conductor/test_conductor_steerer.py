"""Steering by the priority head: only while it is trusted, never out of the range, and always saying who spoke."""

import numpy as np
import pytest

from metalforge.campaign.steerers import Gaps
from metalforge.conductor.features import FEATURES, ChainContext, MetaRow
from metalforge.conductor.heads_training import reservoir
from metalforge.conductor.layouts import CONDUCTOR_11
from metalforge.conductor.questions import HeadReading
from metalforge.conductor.reading import NetworkConductor
from metalforge.conductor.steerer import ConductorSteerer
from metalforge.conductor.trust import Trust, trust_of
from metalforge.conductor.worker import Worker
from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout
from metalforge.core.steering import Observation, Steerer

LOW, HIGH = 5.0, 6.0
CONTEXT = ChainContext(beta=0.0, dims=(8, 8, 8, 4))


class Peaked:
    """A conductor whose priority is a bell at `centre`, with a spread that grows above it."""

    heads = ("beta_priority",)
    layout = HeadLayout(name="one", heads=tuple(h for h in CONDUCTOR_11.heads if h.name == "beta_priority"))

    def __init__(self, centre=5.7, height=1.0):
        self.centre, self.height, self.frames = centre, height, []

    def read(self, frame, *, chain=None):
        assert chain is None
        self.frames.append(frame)
        beta = frame["beta"]
        value = self.height * np.exp(-((beta - self.centre) ** 2) / 0.01)
        return {"beta_priority": HeadReading(np.array([value]), 0.1 * max(beta - self.centre, 0.0))}


def trusted(skill=1.0):
    trust = Trust()
    for i in range(20):
        trust.expect(i, "beta_priority", 1.0 - 0.5 * (1 - skill), 0.5)
        trust.outcome(i, 1.0)
    return trust


def seen(*betas):
    return [Observation(beta=beta, value=1.0, error=0.1, id=f"at {beta}") for beta in betas]


def steerer(conductor=None, trust=None, **options):
    worker = Worker(conductor or Peaked(), trust=trust, threaded=False)
    return ConductorSteerer(LOW, HIGH, worker=worker, context=CONTEXT, **options)


def test_it_is_a_steerer():
    made = steerer(trust=trusted())
    assert isinstance(made, Steerer)
    assert made.name == made.state().name == "conductor"


def test_a_trusted_head_places_points_at_its_peak_and_says_so():
    made = steerer(trust=trusted())
    made.tell(seen(5.0, 6.0))
    first, second = made.ask(2)
    assert abs(first.beta - 5.7) < 0.025
    assert first.by == "head:beta_priority"
    assert first.reason.startswith("trusted (skill 1 over 20 pairs); best of 40 candidates: score ")
    assert second.beta != first.beta
    assert abs(second.beta - 5.7) < 0.05
    assert made.ask(1, [first.beta]) == [second]


def test_the_spread_counts_with_its_weight():
    plain, curious = steerer(trust=trusted(), weight=0.0), steerer(trust=trusted(), weight=40.0)
    assert plain.ask()[0].beta < curious.ask()[0].beta


def test_the_range_is_never_left_wherever_the_peak_is():
    for centre in (4.0, 7.0):
        made = steerer(Peaked(centre, height=5.0), trust=trusted())
        for k in range(12):
            for found in made.ask(2):
                assert LOW <= found.beta <= HIGH
                made.tell([Observation(beta=found.beta, value=1.0, error=0.1, id=f"{k} {found.beta}")])


def test_it_stops_when_nothing_scores_and_before_five_points_it_does_not():
    made = steerer(Peaked(height=0.01), trust=trusted(), weight=0.0)
    made.tell(seen(5.0, 5.2, 5.5, 5.8))
    assert len(made.ask()) == 1
    made.tell(seen(6.0))
    assert made.ask() == []
    assert made.decide().saturated


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"trust": Trust()}, "0 of 20 pairs"),
        ({"trust": trusted(skill=-1.0)}, "skill -3 over 20 pairs"),
        ({"trust": trusted(), "head": "next_run"}, "the layout has no next_run"),
    ],
)
def test_without_trust_the_widest_gap_decides_and_the_standing_says_why(options, why):
    conductor = Peaked()
    made = steerer(conductor, **options)
    made.tell(seen(5.0, 5.2, 6.0))
    (found,) = made.ask()
    assert found.beta == pytest.approx(5.6)
    assert found.by == "rule:widest-gap"
    assert found.reason == "nothing scores candidates: middle of the widest gap, 80.0% of the range"
    assert made.standing.why == made.state().settings["standing"] == why
    assert conductor.frames == []


def test_without_trust_the_fallback_decides():
    trust = Trust()
    trust.mark("beta_priority", "no skill on held-out couplings")
    made = steerer(trust=trust, fallback=Gaps(LOW, HIGH))
    made.tell(seen(5.0, 5.2, 6.0))
    alone = Gaps(LOW, HIGH)
    alone.tell(seen(5.0, 5.2, 6.0))
    found, expected = made.ask(2), alone.ask(2)
    assert [(s.beta, s.reason) for s in found] == [(s.beta, s.reason) for s in expected]
    assert {s.by for s in found} == {"gaps"}
    assert made.state().settings["fallback"] == "gaps"


def test_no_conductor_at_all_is_the_fallback():
    made = ConductorSteerer(LOW, HIGH, worker=None, context=CONTEXT, fallback=Gaps(LOW, HIGH))
    assert made.ask()[0].by == "gaps"
    assert made.standing.why == "no conductor"


def test_a_head_that_fails_is_the_fallback_too():
    class Broken(Peaked):
        def read(self, frame, *, chain=None):
            return {"beta_priority": HeadReading(np.array([np.nan]), None)}

    made = steerer(Broken(), trust=trusted())
    (found,) = made.ask()
    assert found.by == "rule:widest-gap"
    assert found.reason.startswith("beta_priority failed (error: SpecError: the head gave nan at beta 5.02")


def test_a_worker_that_ended_is_the_fallback_too():
    made = steerer(Peaked(), trust=trusted(), fallback=Gaps(LOW, HIGH))
    made.worker.close()
    (found,) = made.ask()
    assert found.by == "gaps"
    assert found.reason.startswith("beta_priority failed (closed at beta 5.02")
    assert made.worker.statistics().baselines == {"closed": 1}


def test_untrained_heads_of_a_network_never_steer():
    heads = CONDUCTOR_11.width
    untrained = CONDUCTOR_11.__class__(
        name="mine", heads=tuple(h.__class__(name=h.name, width=h.width, trained=False) for h in CONDUCTOR_11.heads)
    )
    weights = reservoir(1, units=8).with_readout(np.zeros((heads, 8), np.float32), heads=untrained)
    conductor = NetworkConductor(weights)
    made = steerer(conductor, trust=trusted())  # somebody else's trust: the weights know better
    assert made.ask()[0].by == "rule:widest-gap"
    assert made.standing.why == "untrained"
    assert trust_of(conductor.layout).marked("beta_priority") == "untrained"


def test_it_is_pure_given_its_history():
    one, other = steerer(trust=trusted()), steerer(trust=trusted())
    one.tell(seen(5.0, 5.2, 6.0))
    one.ask(3)
    one.tell(seen(5.65))
    other.tell(seen(5.65, 6.0))
    other.tell(seen(5.2, 5.0))
    assert one.ask(3, [5.3]) == other.ask(3, [5.3])
    assert one.state() == other.state()


def test_a_frame_knows_the_candidate_the_chain_and_what_was_found():
    conductor = Peaked()

    def rows(observations):
        return [MetaRow(beta=o.beta, plaquette=0.5, susceptibility=o.value) for o in observations]

    made = steerer(conductor, trust=trusted(), meta=rows)
    made.tell(seen(5.2))
    made.ask()
    names = {f.name for f in FEATURES.features}
    frame = conductor.frames[-1]
    assert set(frame) <= names
    assert frame["log_volume"] == pytest.approx(np.log(2048))
    assert frame["has_meta"] == 1
    assert frame["below_distance"] == pytest.approx(frame["beta"] - 5.2)


def test_what_one_of_the_two_refuses_neither_takes():
    class Picky(Gaps):
        def tell(self, observations):
            raise SpecError("not today")

    made = steerer(fallback=Picky(LOW, HIGH))
    with pytest.raises(SpecError, match="not today"):
        made.tell(seen(5.5))
    assert len(made.history) == 0
    inner = Gaps(LOW, HIGH)
    made = steerer(fallback=inner)
    with pytest.raises(SpecError, match="must lie in"):
        made.tell([*seen(5.5), *seen(7.0)])
    assert len(inner.history) == len(made.history) == 0


def test_a_fallback_that_could_leave_the_range_is_refused_and_one_that_knows_something_is_heard():
    with pytest.raises(SpecError, match=r"`fallback`.*\[5.0, 6.0\]"):
        steerer(fallback=Gaps(4.0, 6.0))
    told = Gaps(LOW, HIGH)
    told.tell(seen(5.5))
    assert steerer(fallback=told).history.measured == [5.5]
