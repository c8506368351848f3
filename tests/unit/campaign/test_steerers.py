"""One contract over every steerer, and the rules without a model: even refinement, widest gaps, scored candidates."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalforge.campaign.steerers import steerer_names
from metalforge.campaign.steerers.bisection import Bisection
from metalforge.campaign.steerers.curve import CurveSteerer
from metalforge.campaign.steerers.gaussian_process import GaussianProcess
from metalforge.campaign.steerers.uniform import Gaps, Uniform, van_der_corput
from metalforge.core.errors import SpecError
from metalforge.core.steering import History, Observation, Steerer, find_largest_gaps

LOW, HIGH = 5.6, 5.8
MAKERS = {
    "bisection": lambda: Bisection(LOW, HIGH),
    "uniform": lambda: Uniform(LOW, HIGH, points=9),
    "gaps": lambda: Gaps(LOW, HIGH),
    "gaussian-process": lambda: GaussianProcess(LOW, HIGH, reach=0.01, grid=81, paths=64),
    "curve": lambda: CurveSteerer(LOW, HIGH),
    "gaussian-process-prior": lambda: GaussianProcess(LOW, HIGH, reach=0.01, grid=81, paths=64, prior=(5.68, 0.01)),
}


def score(beta):
    return 0.5 + 0.4 * np.cos(40 * beta), 0.1


def curve(beta):
    return 0.1 + 1.2 / (1 + ((beta - 5.69) / 0.04) ** 2)


def observed(betas, seed=1):
    rng = np.random.default_rng(seed)
    return [
        Observation(
            coordinate=b, value=curve(b) * (1 + 0.1 * rng.normal()), error=0.1 * curve(b), cost=10.0, id=f"chain-{i}"
        )
        for i, b in enumerate(betas)
    ]


@pytest.fixture(params=sorted(MAKERS))
def make(request):
    return MAKERS[request.param]


def driven(steerer, rounds, workers=3):
    """Run a steerer with several points in flight; give back all it suggested."""
    rng = np.random.default_rng(7)
    pending, suggested = [], []
    for i in range(rounds):
        while len(pending) < workers and (new := steerer.ask(1, pending)):
            pending.append(new[0].coordinate)
            suggested.append(new[0])
        if not pending:
            break
        beta = pending.pop(0)
        value = curve(beta) * (1 + 0.1 * rng.normal())
        steerer.tell([Observation(coordinate=beta, value=value, error=0.1 * value, id=str(i))])
    return suggested


def test_every_built_in_steerer_is_under_contract():
    assert {make().name for make in MAKERS.values()} | {"conductor"} == set(steerer_names())


def test_suggestions_stay_in_the_range_and_avoid_what_is_pending(make):
    steerer = make()
    assert isinstance(steerer, Steerer)
    suggested = driven(steerer, 14)
    assert len(suggested) >= 14
    assert all(LOW <= s.coordinate <= HIGH and s.reason for s in suggested)
    pending = [s.coordinate for s in steerer.ask(4)]
    more = [s.coordinate for s in steerer.ask(4, pending)]
    assert len(set(pending)) == len(pending)
    assert not {round(b, 9) for b in pending} & {round(b, 9) for b in more}


def test_points_at_the_very_ends_do_not_drive_a_steerer_out(make):
    steerer = make()
    steerer.tell(observed([LOW, LOW + 0.01, HIGH - 0.01, HIGH]))
    for _ in range(6):
        new = [s.coordinate for s in steerer.ask(3, [LOW, HIGH])]
        assert all(LOW <= beta <= HIGH for beta in new)
        if new:
            steerer.tell(
                [Observation(coordinate=b, value=curve(b), error=0.05, id=f"{len(steerer.history)}-{b}") for b in new]
            )


def test_asks_depend_on_the_history_alone(make):
    told = observed(np.linspace(5.61, 5.79, 8))
    one, other = make(), make()
    one.tell(told)
    one.ask(3)
    one.ask(1, [5.7])
    shuffled = list(told)
    random.Random(3).shuffle(shuffled)
    for seen in shuffled:
        other.tell([seen])
    assert one.ask(3, [5.66]) == other.ask(3, [5.66])


def test_a_batch_begins_with_the_single_ask_and_repeats(make):
    steerer = make()
    steerer.tell(observed([5.62, 5.65, 5.68, 5.7, 5.73, 5.77]))
    assert steerer.ask(3)[0] == steerer.ask(1)[0]
    assert [s.coordinate for s in steerer.ask(3)] == [s.coordinate for s in steerer.ask(3)]


def test_a_chain_that_goes_on_replaces_its_observation(make):
    steerer = make()
    steerer.tell(observed([5.62, 5.65, 5.68, 5.7, 5.73]))
    longer = Observation(coordinate=5.68, value=1.25, error=0.01, cost=90.0, id="chain-2")
    steerer.tell([longer])
    assert len(steerer.history.observations) == 5
    assert longer in steerer.history.observations


@pytest.mark.parametrize("field", ["coordinate", "value", "error", "cost"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_observation_that_is_no_number_is_refused_by_name(field, bad):
    with pytest.raises(SpecError, match=f"`{field}`.*`c`.*finite"):
        Observation(**({"coordinate": 5.7, "value": 1.0, "error": 0.1, "cost": 1.0, "id": "c"} | {field: bad}))


def test_wrong_tells_and_asks_are_refused_and_change_nothing(make):
    steerer = make()
    steerer.tell(observed([5.65, 5.7]))
    before = steerer.history.observations
    moved, outside = observed([5.66, 5.81])
    good = Observation(coordinate=5.66, value=1.0, error=0.1, id="good")
    with pytest.raises(SpecError, match=r"`chain-1`.*coordinate 5.81"):
        steerer.tell([good, outside])
    with pytest.raises(SpecError, match=r"`tell`.*at least one"):
        steerer.tell([])
    with pytest.raises(SpecError, match=r"`chain-0`.*5\.65.*5\.66"):
        steerer.tell([good, moved])
    with pytest.raises(SpecError, match="`ask`"):
        steerer.ask(0)
    for pending in (5.5, float("nan")):
        with pytest.raises(SpecError, match="pending point"):
            steerer.ask(1, [pending])
    assert steerer.history.observations == before


@pytest.mark.parametrize(("low", "high"), [(5.8, 5.6), (5.7, 5.7), (float("nan"), 5.7), (5.6, float("inf"))])
def test_an_empty_range_is_refused(low, high):
    with pytest.raises(SpecError, match="range"):
        History(low, high)
    with pytest.raises(SpecError, match="range"):
        find_largest_gaps([], low, high, 1)


def test_a_grid_of_no_points_is_refused():
    with pytest.raises(SpecError, match=r"`points`.*at least 1"):
        Uniform(LOW, HIGH, points=0)


def test_van_der_corput_is_the_mirrored_binary_number():
    assert [van_der_corput(i) for i in range(9)] == [0, 1 / 2, 1 / 4, 3 / 4, 1 / 8, 5 / 8, 3 / 8, 7 / 8, 1 / 16]


def test_a_grid_is_visited_in_rounds():
    grid = Uniform(0.0, 1.0, points=5)
    first = [s.coordinate for s in grid.ask(5)]
    assert sorted(first) == pytest.approx((np.arange(5) + 0.5) / 5)
    assert [s.coordinate for s in grid.ask(5, first)] == first
    # Any start of a round is nearly even: after three of nine cells no gap is half of the range.
    some = sorted([0.0, 1.0, *(s.coordinate for s in Uniform(0.0, 1.0, points=9).ask(3))])
    assert max(b - a for a, b in pairwise(some)) < 0.5


betas = st.lists(st.floats(4.9, 6.1), max_size=12)


@given(measured=betas, n=st.integers(1, 8))
def test_largest_gaps_are_those_of_brute_force(measured, n):
    low, high = 5.0, 6.0
    points = sorted({low, high, *(b for b in measured if low < b < high)})
    widths = sorted((b - a for a, b in pairwise(points)), reverse=True)
    found = find_largest_gaps(measured, low, high, n)
    assert len(found) <= min(n, len(widths))
    for middle, width in zip(found, widths, strict=False):
        left, right = max(p for p in points if p < middle), min(p for p in points if p > middle)
        assert middle == pytest.approx((left + right) / 2)
        assert right - left == pytest.approx(width, abs=1e-8)
    if all(width > 1e-8 for width in widths):
        assert len(found) == min(n, len(widths))
    assert len(set(found)) == len(found)


def test_gaps_of_one_width_come_from_the_lower_end_and_a_batch_closes_its_gaps():
    assert find_largest_gaps([5.3, 5.3 + 1e-13, 5.6], 5.0, 5.9, 2) == pytest.approx([5.15, 5.45])
    assert [s.coordinate for s in Gaps(0.0, 1.0).ask(4)] == pytest.approx([0.5, 0.25, 0.75, 0.125])
    assert Gaps(0.0, 1.0).ask(1)[0].score == pytest.approx(1.0)


def test_an_even_grid_gives_its_second_round_where_least_was_spent():
    """A chain that goes on keeps its id and costs more: the grid is visited again in the same order."""
    steerer = Uniform(0.0, 1.0, points=4)
    spent: dict[float, float] = {}
    visits = []
    for _ in range(12):
        beta = steerer.ask(1)[0].coordinate
        visits.append(beta)
        spent[beta] = spent.get(beta, 50.0) + 100.0
        steerer.tell([Observation(coordinate=beta, value=1.0, error=0.1, cost=spent[beta], id=f"chain at {beta}")])
    assert visits[:4] == visits[4:8] == visits[8:]
    assert len(set(visits)) == 4
    assert steerer.ask(2, [visits[0]])[0].coordinate == visits[1]
