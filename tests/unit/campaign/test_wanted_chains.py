"""What the evidence lacks is measured: the chain is started where and from which phase it is missing, and only once."""

import pytest

from metalforge.campaign.analysis.evidence import Want
from metalforge.campaign.orderings import Assignee
from metalforge.campaign.running.visits import VisitPlan
from metalforge.campaign.spec import Budget, CampaignSpec, Steering
from metalforge.campaign.state import fold
from metalforge.campaign.store.records import Assigned, BlockDone, Estimated, Rows
from metalforge.core.steering import Suggestion
from metalforge.lattice.campaign import Lattice
from reference.campaigns import BEGAN, opened

DIMS = (8, 8, 8, 2)
WHO = Assignee("cpu:0", (DIMS,))


class Elsewhere:
    """A steerer that always wants the upper end of the range."""

    name = "elsewhere"

    def ask(self, n, pending=()):
        return [Suggestion(coordinate=5.19, reason="")]


def plan_of(steerer="gaussian-process"):
    spec = CampaignSpec(
        theory=Lattice(volumes=(DIMS,), beta_min=5.0, beta_max=5.2),
        budget=Budget(trajectories=100_000),
        steering=Steering(steerer=steerer, initial=2),
    )
    return VisitPlan(spec=spec, steerers={DIMS: Elsewhere()})


def state_with(plan, chains, *wants):
    """A campaign with complete chains at (beta, start) and an estimate that lacks these."""
    state = fold([opened(plan.spec)])
    for i, (beta, start) in enumerate(chains):
        state.apply(
            Assigned(
                at=BEGAN, visit=i, round=0, chain=f"c{i:04d}", stream=i, system=DIMS, coordinate=beta, updates=600,
                fresh=True, substrate="cpu:0", by="", reason="", start=start,
            )
        )  # fmt: skip
        columns = {"plaquette": (0.5,), "polyakov_re": (0.1,), "polyakov_im": (0.0,)}
        state.apply(Rows(at=BEGAN, chain=f"c{i:04d}", phase="measure", first=0, columns=columns, seconds=0.1))
        state.apply(
            BlockDone(at=BEGAN, visit=i, chain=f"c{i:04d}", step=1, digest="", done=True, substrate="cpu:0")
        )  # fmt: skip
    state.apply(Estimated(at=BEGAN, system=DIMS, trajectories=2, result=5.093, error=0.01, wants=wants))
    return state


AT = Want(coordinate=5.093, reach=0.005, start="", item="chains at the peak")
COLD = Want(coordinate=5.093, reach=0.02, start="cold", item="starts near the peak")
BOTH = [(5.05, "hot"), (5.1, "hot")]


def test_a_chain_at_the_peak_is_started_when_there_is_none():
    plan = plan_of()
    visit = plan.next(WHO, state_with(plan, BOTH, AT), (), rounds=0, number=2)
    assert (visit.coordinate, visit.fresh, visit.by) == (5.093, True, "evidence")
    assert "chains at the peak" in visit.reason


def test_a_chain_from_the_other_phase_is_started_even_beside_one_that_is_there():
    plan = plan_of()
    visit = plan.next(WHO, state_with(plan, [(5.05, "hot"), (5.093, "hot")], COLD), (), rounds=0, number=2)
    assert (visit.coordinate, visit.fresh, visit.start) == (5.093, True, "cold")
    # The chain that the visit makes has that start, in this process and after a replay of the journal.
    state = state_with(plan, [(5.05, "hot"), (5.093, "hot")], COLD)
    state.apply(visit)
    assert state.chains[visit.chain].start == "cold"


def test_one_that_is_on_its_way_is_waited_for():
    plan = plan_of()
    state = state_with(plan, BOTH, COLD)
    first = plan.next(WHO, state, (), rounds=0, number=2)
    second = plan.next(WHO, state, (first,), rounds=0, number=3)
    assert first.by == "evidence"
    assert second.by == "elsewhere"


def test_one_that_is_there_but_too_short_to_count_is_continued():
    plan = plan_of()
    visit = plan.next(WHO, state_with(plan, [*BOTH, (5.094, "cold")], AT), (), rounds=0, number=3)
    assert (visit.chain, visit.fresh, visit.coordinate) == ("c0002", False, 5.094)


@pytest.mark.parametrize(
    ("steerer", "chains", "want"),
    [
        ("uniform", BOTH, AT),  # a steerer that does not look at results is left alone
        ("gaussian-process", BOTH[:1], AT),  # the first points come first
        ("gaussian-process", BOTH, Want(coordinate=5.3, reach=0.01, start="", item="x")),  # beyond the range
    ],
)
def test_otherwise_the_steerer_decides(steerer, chains, want):
    plan = plan_of(steerer)
    assert plan.next(WHO, state_with(plan, chains, want), (), rounds=0, number=2).by == "elsewhere"
