"""Shares and transfer rates by hand, and intervals that behave."""

import numpy as np
import pytest

from experiments.attacks import share, share_difference, transfer_rate
from metalforge.core.errors import SpecError
from metalforge.reservoir.metrics import wilson


def _coins(n, p, seed):
    return np.random.default_rng(seed).uniform(size=n) < p


def test_one_reservoir_has_the_interval_of_a_share():
    right = _coins(400, 0.7, 1)
    found, wanted = share([right]), wilson(int(right.sum()), 400)
    assert found.value == wanted.value
    assert found.low == pytest.approx(wanted.low, abs=0.01)
    assert found.high == pytest.approx(wanted.high, abs=0.01)
    assert found == share([right])


def test_reservoirs_that_differ_widen_the_interval():
    alike = share([_coins(200, 0.5, i) for i in range(4)])
    apart = share([_coins(200, p, i) for i, p in enumerate((0.1, 0.4, 0.6, 0.9))])
    assert apart.high - apart.low > 3 * (alike.high - alike.low)


def test_paired_differences_are_sharper_than_two_shares():
    right = [_coins(300, 0.6, i) for i in range(3)]
    almost = [r & _coins(300, 0.95, 10 + i) for i, r in enumerate(right)]
    found = share_difference(almost, right)
    assert found.value == pytest.approx(share(almost).value - share(right).value)
    assert found.high < 0
    assert found.high - found.low < 0.5 * (share(right).high - share(right).low)


def test_transfer_counts_what_both_read_and_the_source_lost():
    source_clean = np.array([1, 1, 1, 1, 1, 0], bool)
    source_attacked = np.array([0, 0, 0, 1, 0, 0], bool)
    target_clean = np.array([1, 1, 1, 1, 0, 1], bool)
    target_attacked = np.array([0, 0, 1, 0, 0, 0], bool)
    # Counted: 0, 1, 2. The fourth did not fool the source; the fifth and sixth were wrong without an attack.
    found = transfer_rate([source_clean], [source_attacked], [target_clean], [target_attacked])
    assert found.value == pytest.approx(2 / 3)
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_no_case_is_no_number():
    right = [np.ones(5, bool)]
    assert all(np.isnan(transfer_rate(right, right, right, right)))


def test_bad_groups_are_refused():
    for bad in ([], [np.zeros(0, bool)]):
        with pytest.raises(SpecError, match="at least one reservoir"):
            share(bad)
