"""Classical criteria on series whose transient is known."""

import numpy as np
import pytest

from experiments.heads.baselines import CRITERIA, says
from experiments.heads.corpus import TRAJECTORIES, ChainEntry, ChainRecord
from experiments.heads.labels import Example

N = 200


def chain_with(plaquette):
    entry = ChainEntry(
        part="test",
        beta=5.0,
        dims=(4, 4, 4, 2),
        start="cold",
        seed=1,
        stream=0,
        updates=N,
        algorithm="hmc",
        length=1.0,
        mass=0.0,
    )
    series = np.full((len(TRAJECTORIES), N), np.nan, np.float32)
    series[0] = plaquette
    return Example(chain=ChainRecord(entry=entry, series=series), rows=np.arange(N), inputs=np.zeros((N, 1)))


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_transient_is_seen_while_it_lasts_and_noise_is_not_called_one(criterion) -> None:
    rng = np.random.default_rng(1)
    t = np.arange(N)
    right_early, right_late, calm = [], [], []
    for _ in range(10):
        noise = rng.normal(0, 0.01, N)
        relaxing = says(criterion, chain_with(0.5 + np.exp(-t / 8) + noise))
        right_early.append(1 - relaxing[20:30].mean())
        right_late.append(relaxing[-1])
        calm.append(says(criterion, chain_with(0.5 + noise))[60:].mean())
    assert np.mean(right_early) > 0.9
    assert np.mean(calm) > 0.7
    assert np.mean(right_late) > 0.7


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_verdict_knows_nothing_of_what_comes_later(criterion) -> None:
    rng = np.random.default_rng(2)
    plaquette = 0.5 + rng.normal(0, 0.01, N)
    other = plaquette.copy()
    other[100:] += 0.3
    np.testing.assert_array_equal(
        says(criterion, chain_with(plaquette))[:100], says(criterion, chain_with(other))[:100]
    )
    assert not says(criterion, chain_with(plaquette))[:9].any()
    assert not says("Geweke", chain_with(np.full(N, 0.5))).any()
