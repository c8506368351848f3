"""When a warm-up may end: never before it is over on series whose relaxation is known."""

import msgspec
import numpy as np
import pytest

from metalforge.campaign.running.monitor import LOOK_EVERY, is_due, verdict_on
from metalforge.campaign.spec import WarmUpPolicy

POLICY = WarmUpPolicy(longest=300, shortest=40, safety=2.0)


def relaxing(tau, n, seed, noise=0.05):
    """A series that falls from 1 to 0 as exp(-t / tau), with AR(1) noise."""
    rng = np.random.default_rng(seed)
    kicks = noise * rng.normal(size=n)
    wander = np.zeros(n)
    for t in range(1, n):
        wander[t] = 0.7 * wander[t - 1] + kicks[t]
    return np.exp(-np.arange(n) / tau) + wander


def ended(plaquette, loop):
    for n in range(1, len(plaquette) + 1):
        if is_due(POLICY, n) and verdict_on(POLICY, plaquette[:n], loop[:n]).ends:
            return n
    return len(plaquette)


@pytest.mark.parametrize("tau", [3.0, 10.0, 25.0])
def test_the_rule_waits_for_the_slower_of_both_series(tau):
    ends = []
    for seed in range(20):
        fast, slow = relaxing(2.0, 300, seed), relaxing(tau, 300, 1000 + seed)
        ends.append(ended(fast, slow))
    # What is left of the relaxation when the warm-up ends is far below the noise of one measurement.
    left = np.exp(-np.array(ends) / tau)
    assert np.mean(left > 0.05) <= 0.1
    assert min(ends) >= POLICY.shortest


def test_looks_are_rare_and_none_comes_before_the_shortest_warm_up():
    looks = [n for n in range(200) if is_due(POLICY, n)]
    assert looks[0] == POLICY.shortest
    assert set(np.diff(looks)) == {LOOK_EVERY}
    assert not any(is_due(msgspec.structs.replace(POLICY, early=False), n) for n in range(400))
