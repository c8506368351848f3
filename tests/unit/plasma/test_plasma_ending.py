"""When a run has said enough: by the jackknife of all segments, at borders of segments, never with too few of them."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from metalforge.core.errors import SpecError
from metalforge.plasma import PlasmaJob, PlasmaSpec, TransportSegment
from metalforge.plasma.replicas import FEWEST_SEGMENTS, at_border, found_together, relative_error
from metalforge.plasma.replicas import said_enough as enough
from metalforge.plasma.transport import stress_bins

SPEC = PlasmaSpec(gamma=100.0, kappa=2.0, particles=343)


@dataclass
class KnownSegments:
    """A run of which nothing is known but its segments."""

    count: int
    seed: int = 1
    spec: PlasmaSpec = field(default=SPEC)

    @property
    def measured(self):
        return self.count * self.spec.segment_blocks

    def segments(self):
        rng = np.random.default_rng(self.seed)
        time = SPEC.segment_blocks * SPEC.block_time
        bins = stress_bins(SPEC.kappa, time)
        return [
            TransportSegment(
                time=time,
                temperature=0.01,
                diffusion_msd=float(0.01 * (1 + 0.02 * rng.normal())),
                diffusion_vacf=0.01,
                stress_power=tuple(rng.gamma(2.5 if k == 0 else 5.0, 0.2) for k in range(bins)),
            )
            for _ in range(self.count)
        ]


def test_more_segments_are_more_certain_and_end_a_run():
    few, many = (relative_error(found_together([KnownSegments(n)])) for n in (FEWEST_SEGMENTS, 60))
    assert many < few
    assert enough([KnownSegments(60)], 1.1 * many)
    assert not enough([KnownSegments(60)], 0.9 * many)


def test_too_few_segments_end_nothing():
    assert not enough([KnownSegments(FEWEST_SEGMENTS - 1)], 0.99)
    assert enough([KnownSegments(FEWEST_SEGMENTS)], 0.99)


def test_replicas_are_judged_together():
    together = [KnownSegments(12, seed) for seed in range(1, 6)]
    error = relative_error(found_together(together))
    assert error < relative_error(found_together(together[:1]))
    assert enough(together, 1.05 * error)


def test_runs_end_at_borders_alone():
    run = KnownSegments(8)

    class Within(KnownSegments):
        measured = 8 * SPEC.segment_blocks + 1

    assert at_border([run])
    assert not at_border([run, Within(8)])
    assert not enough([Within(8)], 0.99)
    assert not at_border([KnownSegments(0)])


@pytest.mark.parametrize("target", [0.0, 1.0, -0.1])
def test_a_target_is_a_part(target):
    with pytest.raises(SpecError, match="until_error"):
        PlasmaJob(warmup=0, time=10, until_error=target)
