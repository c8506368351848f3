"""Whatever a head says and whatever was measured, a conductor's steerer stays in its range and repeats no point."""

from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from metalforge.campaign.steerers import Gaps
from metalforge.conductor.features import ChainContext
from metalforge.conductor.layouts import CONDUCTOR_11
from metalforge.conductor.questions import HeadReading
from metalforge.conductor.steerer import ConductorSteerer
from metalforge.conductor.trust import Trust
from metalforge.conductor.worker import Worker
from metalforge.core.steering import Observation

LOW, HIGH = 4.5, 6.0
betas = st.floats(LOW, HIGH)
numbers = st.floats(-1e3, 1e3) | st.just(float("nan"))


class Anything:
    """A conductor whose priority head gives these numbers in turn along the coupling."""

    heads, layout = ("beta_priority",), CONDUCTOR_11

    def __init__(self, values):
        self.values = values

    def read(self, frame, *, chain=None):
        k = int(1e6 * frame["beta"]) % len(self.values)
        return {"beta_priority": HeadReading(np.array([self.values[k]]), abs(self.values[k - 1]))}


@cache
def trusted():
    trust = Trust()
    for i in range(20):
        trust.expect(i, "beta_priority", 1.0, 0.0)
        trust.outcome(i, 1.0)
    return trust


@given(
    values=st.lists(numbers, min_size=1, max_size=7),
    measured=st.lists(betas, max_size=8, unique=True),
    pending=st.lists(betas, max_size=4),
    believed=st.booleans(),
    with_fallback=st.booleans(),
    n=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_suggestions_stay_in_the_range_and_are_pure(values, measured, pending, believed, with_fallback, n):
    def made():
        return ConductorSteerer(
            LOW,
            HIGH,
            worker=Worker(Anything(values), trust=trusted() if believed else None, threaded=False),
            context=ChainContext(beta=0.0, dims=(4, 4, 4, 2)),
            fallback=Gaps(LOW, HIGH) if with_fallback else None,
            n_candidates=12,
        )

    seen = [Observation(beta=beta, value=1.0, error=0.1, id=str(beta)) for beta in measured]
    one, other = made(), made()
    if seen:
        one.tell(seen)
        for observation in reversed(seen):
            other.tell([observation])
    found = one.ask(n, pending)
    assert found == other.ask(n, pending)
    assert len(found) <= n
    points = [s.beta for s in found]
    assert all(LOW <= beta <= HIGH for beta in points)
    assert len(set(points)) == len(points)
    instead = "gaps" if with_fallback else "rule:widest-gap"
    for s in found:
        failed = s.reason.startswith("beta_priority failed (error: SpecError: the head gave nan")
        assert s.by == ("head:beta_priority" if believed and not failed else instead)
