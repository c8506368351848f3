"""Where a peak is expected is a decision of the journal, by scouts, head, curve or user; it places visits alone."""

from dataclasses import replace
from math import hypot

import msgspec
import pytest

from metalforge.campaign.findings import finding
from metalforge.campaign.orderings import Assignee
from metalforge.campaign.report.page import write_report
from metalforge.campaign.report.result import Results
from metalforge.campaign.running.advice import HEAD, READ, RULE, SURE, USER, PeakPriors
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.running.steering import AskAhead
from metalforge.campaign.running.visits import VisitPlan
from metalforge.campaign.spec import Budget, Steering
from metalforge.campaign.state import PEAK_PRIOR, CampaignState, fold
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Assigned, Decided, Estimated, Screened
from metalforge.conductor.advisor import combined
from metalforge.conductor.curves import peak_of, transition_curve, transition_of
from metalforge.conductor.features import ChainContext
from metalforge.core.advice import ExpectedPeak
from metalforge.core.errors import SpecError
from metalforge.core.steering import Suggestion
from metalforge.lattice.campaign import Lattice
from reference.journaling import contents_of
from reference.small_campaigns import ROUNDS as UNSTEERED
from reference.small_campaigns import WITH_QUARKS

SMALL, LARGE = (4, 4, 4, 2), (6, 6, 6, 2)
ROUNDS = msgspec.structs.replace(UNSTEERED, steering=Steering(visit=80, initial=4))
CURVE = transition_of(2, 4)


def with_prior(prior, spec=ROUNDS, **more):
    return msgspec.structs.replace(spec, steering=msgspec.structs.replace(spec.steering, prior=prior), **more)


def priors(state: CampaignState) -> list[Decided]:
    return [decision for decision in state.decisions if decision.what == PEAK_PRIOR]


@pytest.fixture(scope="module")
def expecting(tmp_path_factory):
    """A deterministic campaign that expects its peak where the user says, and its directory."""
    directory = tmp_path_factory.mktemp("expecting") / "run"
    with Campaign.open(with_prior((5.1, 0.01)), directory) as campaign:
        return campaign.run(), directory


def test_the_journal_has_the_prior_before_the_first_visit_and_visits_follow_it(expecting, tmp_path):
    state, directory = expecting
    records = read_journal(directory / JOURNAL)
    kinds = [record for record in records if isinstance(record, Assigned) or getattr(record, "what", "") == PEAK_PRIOR]
    assert isinstance(kinds[0], Decided)
    assert (kinds[0].by, kinds[0].system, kinds[0].value, kinds[0].width) == (USER, SMALL, 5.1, 0.01)
    first = sorted(visit.coordinate for visit in state.visits[:2])
    assert all(5.0 < beta < 5.2 for beta in first)
    with Campaign.open(with_prior("off"), tmp_path / "off") as campaign:
        off = campaign.run()
    assert not priors(off)
    assert sorted(visit.coordinate for visit in off.visits[:2]) == pytest.approx([4.95, 5.25])


def test_a_resumed_campaign_asks_what_it_would_have_asked(expecting, tmp_path):
    state, directory = expecting
    contents = contents_of(directory / JOURNAL)
    for stop in (PEAK_PRIOR, "warmup-ends"):  # just before and some way after the first visits were written
        cut = next(i for i, record in enumerate(contents.records) if getattr(record, "what", "") == stop) + 1
        again = tmp_path / stop
        again.mkdir()
        (again / JOURNAL).write_bytes((directory / JOURNAL).read_bytes()[: contents.offsets[cut]])
        with Campaign.resume(again) as campaign:
            resumed = campaign.run()
        assert len(priors(resumed)) == 1
        assert [v.coordinate for v in resumed.visits] == [v.coordinate for v in state.visits]
        assert resumed.digest() == state.digest()


def test_result_and_evidence_do_not_read_the_prior(expecting):
    _, directory = expecting
    records = read_journal(directory / JOURNAL)
    with_it = fold(records)
    without = fold([record for record in records if getattr(record, "what", "") != PEAK_PRIOR])
    one, other = (finding(state, SMALL, n_bootstrap=20) for state in (with_it, without))
    assert (one.transition, one.evidence) == (other.transition, other.evidence)


def test_the_report_says_where_it_was_expected(expecting, undrawn):
    state, directory = expecting
    page = write_report(Results(state), directory).read_text()
    assert "Where the peak was expected" in page
    assert "5.100(10)" in page


def opened(spec) -> CampaignState:
    from metalforge.campaign.store.records import Opened

    return fold(
        [
            Opened(
                spec=spec, spec_sha256=spec.sha256, package_version="", isa="", command=(), ordering="C", silicon=(),
                python="",
            )
        ]
    )  # fmt: skip


def visit(number, beta, dims=SMALL):
    return Assigned(
        visit=number, round=0, chain=f"c{number:04d}", stream=number, system=dims, coordinate=beta, updates=80,
        fresh=True, substrate="cpu:0", by="test", reason="",
    )  # fmt: skip


def test_without_a_word_the_curve_speaks_once_and_only_for_a_volume_that_has_not_begun():
    state = opened(ROUNDS)
    said = PeakPriors(ROUNDS).news(state, SMALL)
    assert (said.by, said.value, said.width, said.baseline) == (RULE, CURVE.mean, CURVE.error, CURVE.mean)
    assert said.trusted is None
    state.apply(said)
    assert PeakPriors(ROUNDS).news(state, SMALL) is None
    assert state.prior(SMALL) == (CURVE.mean, CURVE.error)
    begun = opened(ROUNDS)
    begun.apply(visit(0, 5.1))
    assert PeakPriors(ROUNDS).news(begun, SMALL) is None
    elsewhere = with_prior("auto", theory=Lattice(volumes=(SMALL,), beta_min=6.5, beta_max=7.0))
    assert PeakPriors(elsewhere).news(opened(elsewhere), SMALL) is None


@pytest.mark.parametrize("dims", [(8, 8, 8, 4), (12, 12, 12, 4), (4, 6, 8, 2), (10, 10, 10, 2)])
def test_the_prior_is_where_the_features_of_its_chains_have_the_transition_to_the_last_bit(dims):
    spec = with_prior("auto", theory=Lattice(volumes=(dims,), beta_min=4.0, beta_max=7.0))
    said = PeakPriors(spec).news(opened(spec), dims)
    there = transition_of(dims[3], ChainContext(beta=5.0, dims=dims).n_s)
    assert (said.value, said.width) == (there.mean, there.error)


def test_sea_quarks_and_steerers_that_expect_nothing_have_no_prior():
    quarks = msgspec.structs.replace(ROUNDS, theory=WITH_QUARKS)
    assert PeakPriors(quarks).news(opened(quarks), SMALL) is None
    even = msgspec.structs.replace(ROUNDS, steering=Steering(steerer="uniform"))
    assert PeakPriors(even).news(opened(even), SMALL) is None


def look(dims, *, established, beta_c=5.08, error=0.002):
    return Estimated(
        system=dims, trajectories=100, result=beta_c, error=error, height=1.0, width=0.04, established=established
    )


@pytest.mark.parametrize("quarks", [False, True])
def test_scouts_speak_for_larger_volumes_and_better_once_they_are_established(quarks):
    lattice = WITH_QUARKS if quarks else ROUNDS.theory
    spec = msgspec.structs.replace(ROUNDS, theory=msgspec.structs.replace(lattice, volumes=(LARGE, SMALL)))
    state, speak = opened(spec), PeakPriors(spec)
    for number in range(spec.steering.initial):
        assert speak.news(state, LARGE) is None or not quarks
        state.apply(visit(number, 5.0 + 0.05 * number))
        state.chains[f"c{number:04d}"].complete = 80
    state.apply(look(SMALL, established=False))
    first = speak.news(state, LARGE)
    shift = 0.0 if quarks else transition_of(2, 6).mean - CURVE.mean
    assert first.value == pytest.approx(5.08 + shift)
    assert first.width == pytest.approx(hypot(0.002, 0.02))
    state.apply(first)
    assert speak.news(state, LARGE) is None
    state.apply(look(SMALL, established=True))
    second = speak.news(state, LARGE)
    assert second.by == SURE
    assert second.width <= first.width
    assert state.expected(LARGE).by == first.by


def test_a_trusted_head_refines_the_curve_and_is_no_part_of_a_replay_without_heads():
    state, advisor = opened(ROUNDS), ROUNDS.theory.advisor()
    score = msgspec.structs.replace(advisor.heads.scores[HEAD], trusted=True)
    advisor.heads = replace(advisor.heads, scores={HEAD: score}, domain=None)
    speak = PeakPriors(ROUNDS, advisor)
    state.apply(speak.news(state, SMALL))
    reading = 0.5
    for number in range(3):
        assert speak.news(state, SMALL) is None
        state.apply(visit(number, 5.0 + 0.1 * number))
        log = state.chains[f"c{number:04d}"]
        log.complete = 80
        log.screened.append(
            Screened(chain=log.id, step=80, route="software", chi=None, flagged=False, heads={HEAD: reading})
        )
    said = speak.news(state, SMALL)
    assert (said.by, said.head, said.trusted, said.baseline) == (READ, HEAD, True, CURVE.mean)
    assert CURVE.mean < said.value < peak_of(reading, CURVE)
    assert said.width < CURVE.error
    state.apply(said)
    assert state.expected(SMALL).by == READ
    assert state.expected(SMALL, by_heads=False).by == RULE
    assert PeakPriors(ROUNDS, ROUNDS.theory.advisor()).news(opened(ROUNDS), SMALL).by == RULE


class Follows:
    """A steerer that measures where `at` says, given where the peak is expected."""

    name = "follows"

    def __init__(self, at):
        self.at, self.prior = at, None

    def expect(self, prior):
        self.prior = prior

    def ask(self, n=1, pending=()):
        return [Suggestion(coordinate=beta, reason="") for beta in self.at(self.prior[0], n)]

    def tell(self, observations):
        pass


def erratic(mean, n):
    """Places far apart for the least change of the head's word, and two that are near for the two words themselves."""
    return [{5.1: 5.10, 5.2: 5.12}.get(mean, 5.25)]


@pytest.mark.parametrize(
    ("word", "at", "baseline", "by_head"),
    [
        (5.2, lambda mean, n: [mean], 5.1, True),
        (5.1001, lambda mean, n: [round(mean, 2)], 5.1, False),
        (5.2, erratic, 5.1, False),
        (5.2, lambda mean, n: [mean] if mean > 5.15 else [], None, True),
    ],
    ids=["moved", "not moved", "erratic", "no visit without it"],
)
def test_a_visit_is_a_heads_where_the_steerer_would_be_elsewhere_without_its_word(word, at, baseline, by_head):
    state = opened(ROUNDS)
    for by, head, value in ((RULE, "", 5.1), (READ, HEAD, word)):
        state.apply(Decided(what=PEAK_PRIOR, system=SMALL, by=by, head=head, reason="", value=value, width=0.01))
    plan = VisitPlan(spec=ROUNDS, steerers={SMALL: Follows(at)})
    found = plan.next(Assignee("cpu:0", (SMALL,)), state, [], rounds=0, number=0)
    assert (found.head, found.baseline, found.by_head) == (HEAD, baseline, by_head)
    assert plan.steerers[SMALL].prior == (word, 0.01), "the steerer is left with the head's word"


def test_visits_that_are_decided_together_are_compared_in_order_of_beta():
    """The same three places in another order are the same decision."""
    state = opened(ROUNDS)
    for by, head, value in ((RULE, "", 5.1), (READ, HEAD, 5.2)):
        state.apply(Decided(what=PEAK_PRIOR, system=SMALL, by=by, head=head, reason="", value=value, width=0.01))
    places = [5.25, 4.95, 5.15]
    steerer = Follows(lambda mean, n: places if mean > 5.15 else places[::-1])
    ahead = AskAhead(3)
    found = [ahead.next(SMALL, steerer, [], state) for _ in range(3)]
    assert [one.found.coordinate for one in found] == places
    assert [one.without[0].coordinate for one in found] == places


def test_many_chains_do_not_shrink_what_the_head_is_off_by_on_a_new_lattice():
    curve, held_out = ExpectedPeak(5.1, 0.05, 0.01), 0.01
    readings = [5.12 + 0.001 * (-1) ** i for i in range(200)]
    mean, width = combined(readings, held_out, curve)
    assert width == pytest.approx((held_out**-2 + curve.error**-2) ** -0.5, rel=0.01)
    assert mean == pytest.approx((5.12 / held_out**2 + 5.1 / curve.error**2) * width**2, rel=1e-4)
    assert combined(readings[:3], held_out, curve)[1] > width
    assert transition_curve().unit > 0


def test_a_larger_volume_begins_after_the_first_points_of_its_scout(tmp_path):
    lattice = Lattice(volumes=(LARGE, SMALL), beta_min=4.9, beta_max=5.3)
    spec = with_prior("auto", theory=lattice, budget=Budget(trajectories=2500))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = campaign.run()
    order = [visit.system for visit in state.visits]
    assert set(order[:4]) == {SMALL}
    assert LARGE in order
    moved = next(decision for decision in priors(state) if decision.system == LARGE and "scout" in decision.by)
    assert "4^3x2 has its peak at \u03b2 = " in moved.reason


@pytest.mark.parametrize(
    ("steering", "word"),
    [
        ({"prior": [5.7, 0.0]}, "width"),
        ({"prior": [5.7]}, "prior"),
        ({"prior": "sometimes"}, "prior"),
        ({"prior": [5.7, 0.1], "steerer": "uniform"}, "uniform"),
    ],
)
def test_a_prior_that_makes_no_sense_is_refused_with_its_place(steering, word):
    with pytest.raises((SpecError, msgspec.ValidationError), match=word):
        msgspec.convert(steering, Steering)
