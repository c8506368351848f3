"""More of a campaign: what is asked beside a spec, and a campaign that goes on after its end."""

import math
import shutil
import signal

import msgspec
import pytest

from chaos.kills import Victims
from chaos.victim import Job
from metalforge.campaign.extending import Extension, asked_beside, extended
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.spec import Budget, CampaignSpec, load_spec, preset, presets
from metalforge.campaign.state import fold
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Extended, Finished, Interrupted, Resumed
from metalforge.core.errors import SpecError
from metalforge.lattice.campaign import Lattice
from reference.small_campaigns import ROUNDS

MORE = Extension(trajectories=700, couplings=(4.85, 5.07), widen=True, systems=((4, 4, 8, 2),))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The directory of a campaign that has spent its budget."""
    directory = tmp_path_factory.mktemp("finished") / "run"
    with Campaign.open(ROUNDS, directory) as campaign:
        campaign.run()
    return directory


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of it to work on."""
    return shutil.copytree(finished, tmp_path / "copy")


def state_of(directory):
    return fold(read_journal(directory / JOURNAL))


def test_a_finished_campaign_goes_on_with_more_updates_volumes_and_points(copy):
    before = state_of(copy)
    with Campaign.resume(copy, more=MORE, command=("metalforge", "resume")) as campaign:
        after = campaign.run()
    assert after.opened.spec == ROUNDS
    assert after.spec.budget.trajectories == ROUNDS.budget.trajectories + 700
    assert before.trajectories < after.trajectories <= after.spec.budget.trajectories
    assert after.finished.stopped_by == "trajectories"
    assert load_spec(copy / "spec.toml") == after.spec
    new = after.visits[len(before.visits) :]
    asked = [visit for visit in new if visit.by == "user"]
    # Both points in both volumes, before the steerer is asked again; the range has grown to hold them.
    assert {(visit.system, visit.coordinate) for visit in asked} == {
        (d, b) for d in after.spec.theory.volumes for b in MORE.couplings
    }
    assert new[: len(asked)] == asked
    assert after.spec.theory.beta_min == 4.85
    records = read_journal(copy / JOURNAL)
    assert [r.command for r in records if isinstance(r, Extended)] == [("metalforge", "resume")]
    assert sum(isinstance(record, Finished) for record in records) == 2


@pytest.mark.chaos
def test_killed_in_new_processes_an_extended_campaign_ends_as_one_left_alone(copy, tmp_path):
    other = shutil.copytree(copy, tmp_path / "killed")
    with Campaign.resume(copy, more=MORE) as campaign:
        digest = campaign.run().digest()
    with Campaign.resume(other, more=MORE):
        pass  # extended, and gone before anything runs
    with Victims() as victims:
        for site, count in (("update", 40), ("half", 12)):
            job = Job(directory=str(other), campaign=ROUNDS.name, site=site, count=count)
            assert victims.run(job) == -signal.SIGKILL
        assert victims.run(Job(directory=str(other), campaign=ROUNDS.name)) == 0
    last = state_of(other)
    assert last.digest() == digest
    assert len(last.extended) == 1


def test_a_campaign_interrupted_before_a_round_began_can_be_extended(tmp_path):
    """The round that was written for the old spec is run as far as it was written, and not planned again."""
    directory = tmp_path / "run"
    with Campaign.open(ROUNDS, directory) as campaign:
        campaign.interrupt("test")
        assert isinstance(campaign.run().interrupted[-1], Interrupted)
    with Campaign.resume(directory, more=Extension(trajectories=900, couplings=(5.07,))) as campaign:
        state = campaign.run()
    assert state.finished is not None
    assert any(visit.by == "user" and visit.coordinate == 5.07 for visit in state.visits)


def test_time_between_the_end_and_the_extension_does_not_count(finished):
    state = state_of(finished)
    spent = state.seconds
    spec = extended(state, Extension(trajectories=100))
    at = state.finished.at
    state.apply(Resumed(at=at + 1000.0, package_version="", isa=""))
    state.apply(Extended(at=at + 1000.5, spec=spec))
    assert state.finished is None
    assert state.elapsed(at + 1002.0) == pytest.approx(spent + 2.0)


def test_the_limit_that_ended_it_is_lifted_and_others_stay(finished):
    state = state_of(finished)
    free = msgspec.structs.replace(
        ROUNDS,
        running=msgspec.structs.replace(ROUNDS.running, deterministic=False),
        budget=Budget(trajectories=1200, seconds=500.0, target_error=0.01),
    )
    state.opened = msgspec.structs.replace(state.opened, spec=free)
    more = extended(state, Extension(seconds=60.0)).budget
    assert more.trajectories is None
    assert more.seconds == 560.0
    assert more.target_error == 0.01
    state.finished = msgspec.structs.replace(state.finished, stopped_by="target")
    assert extended(state, Extension(couplings=(5.1,))).budget == Budget(trajectories=1200, seconds=500.0)
    assert extended(state, Extension(target_error=0.002)).budget.target_error == 0.002


def test_an_extension_is_added_to_the_limit_and_leaves_something_to_spend(finished):
    state = state_of(finished)
    free = msgspec.structs.replace(ROUNDS, running=msgspec.structs.replace(ROUNDS.running, deterministic=False))
    for limit, added, wanted in ((900.0, 60.0, 960.0), (None, 60.0, state.seconds + 60.0)):
        budget = Budget(trajectories=5000, seconds=limit)
        state.opened = msgspec.structs.replace(state.opened, spec=msgspec.structs.replace(free, budget=budget))
        assert extended(state, Extension(seconds=added)).budget.seconds == pytest.approx(wanted)
        assert extended(state, Extension(trajectories=10)).budget.trajectories == 5010
    # The last blocks took longer than the limit and the extension together.
    budget = Budget(seconds=state.seconds / 4)
    state.opened = msgspec.structs.replace(state.opened, spec=msgspec.structs.replace(free, budget=budget))
    more = state.seconds / 2
    assert extended(state, Extension(seconds=more)).budget.seconds == pytest.approx(state.seconds + more)


def test_more_updates_than_none_are_enough_for_a_visit(finished):
    state = state_of(finished)
    least = ROUNDS.steering.shortest
    with pytest.raises(SpecError, match=f"room for a visit, {least} updates"):
        extended(state, Extension(trajectories=least - 1))
    assert extended(state, Extension(trajectories=least)).budget.trajectories == ROUNDS.budget.trajectories + least


def test_a_limit_that_a_campaign_does_not_have_is_not_made_while_it_runs(finished):
    state = state_of(finished)
    free = msgspec.structs.replace(ROUNDS, running=msgspec.structs.replace(ROUNDS.running, deterministic=False))
    state.opened, state.finished = msgspec.structs.replace(state.opened, spec=free), None
    with pytest.raises(SpecError, match=r"(?s)no limit of seconds that could be extended.*budget\.trajectories"):
        extended(state, Extension(seconds=50.0))


def test_a_coupling_outside_the_range_is_refused_unless_the_range_is_widened(finished):
    state = state_of(finished)
    for outside in (50.0, 4.899):
        with pytest.raises(SpecError, match="within the range"):
            asked_beside(ROUNDS, Extension(couplings=(5.0, outside)))
        with pytest.raises(SpecError, match="within the range"):
            extended(state, Extension(trajectories=500, couplings=(outside,)))
    assert asked_beside(ROUNDS, Extension(couplings=(50.0,), widen=True)).theory.beta_max == 50.0
    assert extended(state, Extension(trajectories=500, couplings=(4.9, 5.3))).theory == ROUNDS.theory


def test_a_point_that_is_removed_is_visited_no_more_and_its_range_goes(copy):
    before = state_of(copy)
    busy = max(before.chains.values(), key=lambda chain: chain.measured)
    with Campaign.resume(copy, more=Extension(trajectories=20, couplings=(5.07, 6.0), widen=True)) as campaign:
        assert campaign.spec.steering.points == (5.07, 6.0)
    gone = (busy.coordinate, 6.0)
    with Campaign.resume(copy, more=Extension(trajectories=900, remove=gone)) as campaign:
        after = campaign.run()
    assert after.spec.theory == ROUNDS.theory
    assert after.spec.steering.points == (5.07,)
    new = after.visits[len(before.visits) :]
    assert 5.07 in [visit.coordinate for visit in new]
    assert len(new) > 3
    assert not any(after.spec.near(visit.coordinate, gone) for visit in new)
    assert after.chains[busy.id].measured == busy.measured  # what was measured stays
    with pytest.raises(SpecError, match=r"5\.07"):
        extended(after, Extension(trajectories=900, remove=(5.2999,)))
    again = extended(after, Extension(trajectories=900, couplings=(busy.coordinate,)))
    assert again.steering.removed == (6.0,)


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (Extension(couplings=(5.1,)), "--trajectories"),
        (Extension(target_error=0.001), "--trajectories"),
        (Extension(seconds=5.0, trajectories=90), "deterministic"),
        (Extension(trajectories=-5), "positive"),
        (Extension(trajectories=500, systems=((4, 4, 4, 2),)), "already"),
        (Extension(trajectories=500, systems=((8, 8, 8, 4),)), "N_t"),
        (Extension(trajectories=500, systems=((8, 8, 7, 2),)), "even"),
    ],
)
def test_what_cannot_be_asked_is_refused_and_leaves_the_journal_alone(copy, more, word):
    before = (copy / JOURNAL).read_bytes()
    with pytest.raises(SpecError, match=word):
        Campaign.resume(copy, more=more)
    assert (copy / JOURNAL).read_bytes() == before


def test_an_ordering_that_runs_one_volume_takes_no_other(finished):
    state = state_of(finished)
    state.opened = msgspec.structs.replace(state.opened, spec=msgspec.structs.replace(ROUNDS, ordering="A"))
    with pytest.raises(SpecError, match="ordering A"):
        extended(state, Extension(trajectories=500, systems=((8, 8, 8, 2),)))


def test_beside_a_spec_budgets_and_volumes_take_its_place():
    spec = asked_beside(preset("demo"), Extension(seconds=30.0, target_error=0.004, systems=((12, 12, 12, 4),)))
    assert (spec.budget.seconds, spec.budget.target_error) == (30.0, 0.004)
    assert spec.theory.volumes == ((12, 12, 12, 4),)
    assert spec.theory.beta_min == preset("demo").theory.beta_min
    six = asked_beside(preset("demo"), Extension(systems=((12, 12, 12, 6),))).theory
    assert six.low < 5.894 < six.high
    plain = CampaignSpec(theory=Lattice())
    assert asked_beside(plain, Extension(couplings=(5.68, 5.9), widen=True)).steering.points == (5.68, 5.9)
    assert asked_beside(plain, Extension()) == plain
    with pytest.raises(SpecError, match="sea quarks"):
        asked_beside(preset("dynamical-nf4"), Extension(systems=((8, 8, 8, 6),)))


def test_boxes_and_couplings_of_a_plasma_are_asked_for_as_people_give_them():
    tiny = preset("plasma-tiny")
    spec = asked_beside(tiny, Extension(systems=((300,), (200,)), couplings=(30.0, 120.0), widen=True))
    assert spec.theory.particles == (300, 200)
    assert (spec.theory.gamma_min, spec.theory.gamma_max) == (30.0, 400.0)
    assert [math.exp(at) for at in spec.steering.points] == pytest.approx([30.0, 120.0])
    assert spec.theory.table() == "plasma"
    for wrong, word in (
        (Extension(systems=((8, 8, 8, 4),)), "number of particles, as in 500"),
        (Extension(couplings=(-1.0,)), "Gamma must be positive"),
        (Extension(systems=((20,),)), "particles"),
    ):
        with pytest.raises(SpecError, match=word):
            asked_beside(tiny, wrong)
    with pytest.raises(SpecError, match="four extents"):
        asked_beside(preset("demo"), Extension(systems=((500,),)))


@pytest.mark.parametrize("name", presets())
def test_a_campaign_is_given_back_by_its_own_theory(name):
    """What is asked for goes through the theory, and asking for what is there changes nothing."""
    spec = preset(name)
    theory = spec.theory
    assert msgspec.structs.replace(spec, theory=theory.of(theory.systems)) == spec
    assert theory.within(theory.low, theory.high) == theory
    assert theory.words.shows[0]
    assert all(
        (shown == "") == (column == "")
        for shown, column in zip(theory.words.shows, theory.words.columns[1:], strict=True)
    )
