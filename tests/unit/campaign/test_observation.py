"""What a steerer is told of a chain."""

import numpy as np
import pytest

from metalforge.campaign.analysis.selection import observe
from reference.landau_chain import VOLUME, exact_chi, run_chains
from reference.loop_series import loop_series


@pytest.fixture(scope="module")
def chains():
    return run_chains([5.69] * 120, 900, np.random.default_rng(2))


def series(chains, i, rows):
    plaquette, loop = chains
    return loop_series(5.69, VOLUME, plaquette[:rows, i], loop[:rows, i].astype(complex))


def test_the_susceptibility_and_its_error_are_right_on_average(chains):
    seen = [observe(series(chains, i, 900), id=f"c{i}", cost=1050.0) for i in range(120)]
    assert all(one is not None for one in seen)
    truth = exact_chi(5.69)[0]
    values, errors = np.array([o.value for o in seen]), np.array([o.error for o in seen])
    # 120 chains: the mean to 3 %, the spread to 7 %.
    assert values.mean() == pytest.approx(truth, rel=0.1)
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(values.std(), rel=0.35)
    assert (seen[0].coordinate, seen[0].id, seen[0].cost) == (5.69, "c0", 1050.0)


def test_nothing_is_said_of_a_chain_that_is_too_short(chains):
    assert observe(series(chains, 0, 20), id="a", cost=1.0) is None
    wandering = 1 + 0.01 * np.cumsum(np.random.default_rng(1).normal(size=60))
    slow = loop_series(5.69, VOLUME, chains[0][:60, 0], wandering.astype(complex))
    assert observe(slow, id="a", cost=1.0) is None
    stuck = loop_series(5.69, VOLUME, chains[0][:60, 0], np.ones(60, dtype=complex))
    assert observe(stuck, id="a", cost=1.0) is None


def test_more_rows_make_a_smaller_error(chains):
    relative = []
    for rows in (300, 900):
        seen = [observe(series(chains, i, rows), id="a", cost=1.0) for i in range(120)]
        relative.append(np.median([one.error / one.value for one in seen if one is not None]))
    assert relative[1] < 0.75 * relative[0]
