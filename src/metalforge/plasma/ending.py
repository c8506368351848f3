"""When runs of a state point have said enough: the error of what they found together, at the border of a segment.

The rule looks at D_N* and eta*: the larger of their relative errors, by the jackknife over all segments, must be at
most the one that was asked for. Stopping when an error looks small picks runs whose error is underestimated: with few
segments an error is itself uncertain by 1 / sqrt(2 (segments - 1)), so that many are waited for at least.
"""

import math
from collections.abc import Sequence

from .run import PlasmaRun
from .transport import Transport, transport

FEWEST_SEGMENTS = 6
"""Of all runs together: fewer do not end a run, whatever error they have."""


def at_border(runs: Sequence[PlasmaRun]) -> bool:
    """Return whether all runs stand at the end of a segment of measurement."""
    return all(run.measured > 0 and run.measured % run.spec.segment_blocks == 0 for run in runs)


def found_together(runs: Sequence[PlasmaRun]) -> Transport:
    """Return what all segments of the runs say."""
    return transport(runs[0].spec, [run.segments() for run in runs])


def relative_error(found: Transport) -> float:
    """Return the larger of the relative errors of D_N* and eta*; infinite where there is no jackknife yet."""
    errors = [
        math.inf if one.error is None or not math.isfinite(one.error) else one.error / abs(one.mean)
        for one in (found.diffusion, found.viscosity)
    ]
    return max(errors)


def enough(runs: Sequence[PlasmaRun], target: float) -> bool:
    """Return whether runs of one state point may end: the jackknife's rule."""
    if not at_border(runs):
        return False
    found = found_together(runs)
    return found.segments >= FEWEST_SEGMENTS and relative_error(found) <= target
