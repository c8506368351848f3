"""What a prior is worth, and what a wrong one costs, on whole campaigns of an exactly solved model."""

import numpy as np
import pytest

from experiments.exact_model import CROSSOVER
from experiments.rehearsal import rehearsal_spec, rehearse
from metalforge.campaign.findings import finding
from metalforge.core.threads import one_thread

MODEL = CROSSOVER._replace(low=5.3, high=6.0)
PEAK = CROSSOVER.peak()[0]
CAMPAIGNS, UPDATES = 60, 32_000


def campaigns(prior):
    """Return (beta_c - truth, quoted error, established) of campaigns with a fixed budget, where a peak was found."""
    seeds = range(90_000, 90_000 + CAMPAIGNS)
    specs = [rehearsal_spec(MODEL, seed, {"trajectories": UPDATES}, prior=prior) for seed in seeds]
    with one_thread():
        found = [finding(state, state.spec.theory.volumes[0], n_bootstrap=50) for state in rehearse(MODEL, specs, 9)]
    located = [(one.transition.result - PEAK, one.transition.error, one.established) for one in found if one.transition]
    return np.array(located, dtype=np.float64).T


@pytest.mark.long
def test_an_oracle_lowers_the_error_and_a_prior_five_widths_off_neither_spoils_it_nor_establishes_it_wrong():
    """Errors by the median of those quoted, which 60 campaigns know to a few percent; the rmse scatters by a tenth."""
    none, oracle = campaigns("off"), campaigns((PEAK, 0.003))
    wrong = [campaigns((PEAK + 5 * width * side, width)) for width, side in ((0.02, 1), (0.01, -1))]
    assert np.median(oracle[1]) < 0.92 * np.median(none[1])
    assert oracle[2].mean() > none[2].mean()
    for found in wrong:
        assert found.shape[1] >= CAMPAIGNS - 2
        assert np.median(found[1]) < 1.05 * np.median(none[1]) * (1 + 2 / np.sqrt(CAMPAIGNS) * 0.25)
    for off, error, established in (none, oracle, *wrong):
        sure = established > 0
        assert np.all(np.abs(off[sure]) < 4 * error[sure])
