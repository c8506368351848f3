"""Intervals over couplings: they hold for few couplings, and chains of one coupling do not narrow them."""

import numpy as np
import pytest

from experiments.heads.scores import chains_to_see, least_seen, over_couplings
from metalforge.core.errors import SpecError


def test_the_interval_of_five_couplings_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    found = [over_couplings(rng.normal(size=5)) for _ in range(300)]
    inside = np.mean([one.low <= 0 <= one.high for one in found])
    # A plain percentile interval of five has 0.83.
    assert 0.9 < inside < 0.985
    assert all(one.low < one.value < one.high for one in found)


def test_an_interval_does_not_leave_what_was_found_at_the_couplings() -> None:
    found = over_couplings([0.1, 0.2, 0.3, 0.4, 1.0])
    assert found.value == pytest.approx(0.4)
    assert 0.1 <= found.low < found.high <= 1.0
    with pytest.raises(SpecError, match="two"):
        over_couplings([1.0])


def test_so_many_chains_see_a_bias_in_nineteen_of_twenty_studies() -> None:
    n, bias = chains_to_see(0.3), 0.3
    assert n == 121
    studies = np.random.default_rng(5).normal(bias, 1, size=(4000, n)).mean(axis=1)
    assert np.mean(studies > 1.645 / np.sqrt(n)) == pytest.approx(0.95, abs=0.012)
    assert least_seen(1 / n) == pytest.approx(bias, abs=0.002)
