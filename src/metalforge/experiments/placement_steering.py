r"""What steering between couplings saves on the lattice of the corpus: trajectories for the same error on beta_c.

Virtual campaigns on a tape of 4^3 x 2 (long chains on a grid of beta, made once): an even scan and the Gaussian process
spend the same budget, warm-ups included, with the same seeds. Errors of beta_c fall as budget^(-1/2), so

    ratio = sum (beta_c - reference)^2 of the steered runs / the same of even scans

is the share of trajectories that gives the same error; the reference is beta_c of the whole tape. A run that does not
find beta_c has the error of a guess, the range / sqrt(12). The interval draws seeds again. Experiment `steering` does
this on 8^3 x 4, for more steerers and ranges.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metalforge.campaign.physics.transition import locate
from metalforge.campaign.steerers import GaussianProcess, build_steerer
from metalforge.core.steering import Steerer

from .cache import cached_arrays
from .drawing import LiveSource, TapeSource, as_series
from .placement_rules import bootstrap
from .protocol import Figure, Settings
from .tape import Tape, TapeSpec
from .virtual_campaign import Rules, run_campaign

__all__ = ["RANGES", "Steered", "steer"]

Doubles = NDArray[np.float64]
RANGES = ((4.7, 5.5), (4.9, 5.3))
"""The couplings of the corpus on this lattice, and the half of them around the transition: apart, since an even scan
wastes little of a range that is hardly wider than the peak."""
POINTS = 9
INITIAL = 4


class Steered(NamedTuple):
    """The ratio of trajectories at the same error, RMS errors of both, and how many runs did not find beta_c."""

    range: tuple[float, float]
    ratio: Figure
    steered: float
    even: float
    lost: tuple[int, int]
    seeds: int
    budget: int

    @property
    def saved(self) -> Figure:
        """The share of trajectories that steering saves at the same error."""
        return Figure(1 - self.ratio.value, 1 - self.ratio.high, 1 - self.ratio.low)


def steer(settings: Settings, low: float, high: float) -> Steered:
    """Return what the Gaussian process needs of an even scan's trajectories, over one range."""
    spec = TapeSpec(
        dims=(4, 4, 4, 2),
        betas=tuple(round(float(b), 4) for b in np.linspace(low, high, 9 if settings.quick else 33)),
        updates=(400,) * 9 if settings.quick else (3000,) * 33,
        warmup=100,
    )
    tape = _tape(spec)
    seeds, rules = (3, Rules(budget=2000, warmup=40)) if settings.quick else (100, Rules(budget=6000, warmup=40))
    truth = locate([as_series(b, spec.dims, r) for b, r in zip(spec.betas, tape.rows, strict=True)], seed=1).beta_c
    fresh = 1 + rules.warmup / rules.block
    makers: dict[str, Callable[[int], Steerer]] = {
        "steered": lambda seed: GaussianProcess(low, high, initial=INITIAL, fresh_cost=fresh, seed=seed),
        "even": lambda seed: build_steerer("uniform", low, high, points=POINTS),
    }
    errors: dict[str, list[float]] = {name: [] for name in makers}
    lost = dict.fromkeys(makers, 0)
    for k in range(seeds):
        for name, make in makers.items():
            seed = settings.seed + k
            done = run_campaign(make(seed), TapeSource(tape, seed), rules, seed)
            missed = done.error is None
            lost[name] += missed
            errors[name].append((high - low) / np.sqrt(12) if missed else done.beta_c - truth)
    squares = {name: np.square(values) for name, values in errors.items()}
    ratio = bootstrap(lambda drawn: float(squares["steered"][drawn].sum() / squares["even"][drawn].sum()), seeds)
    return Steered(
        (low, high),
        ratio,
        float(np.sqrt(squares["steered"].mean())),
        float(np.sqrt(squares["even"].mean())),
        (lost["steered"], lost["even"]),
        seeds,
        rules.budget,
    )


def _tape(spec: TapeSpec) -> Tape:
    def make() -> dict[str, Doubles]:
        source = LiveSource(spec.dims, spec.seed, warmup=spec.warmup)
        drawn = [source.draw(b, n, chain=i) for i, (b, n) in enumerate(zip(spec.betas, spec.updates, strict=True))]
        return {
            f"chain{i:04d}": np.stack([s.plaquette, s.polyakov.real, s.polyakov.imag], axis=1)
            for i, s in enumerate(drawn)
        }

    stored = cached_arrays("placement-tape", spec, make)
    return Tape(spec, tuple(stored[f"chain{i:04d}"].astype(np.float32) for i in range(len(spec.betas))))
