"""Runs at one beta each, as reweighting wants them: thinned to nearly independent samples, and how they overlap."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core.errors import SpecError

from .estimate import Floats, as_series
from .gamma import gamma_method
from .mbar import pair_overlap
from .resample import block_length

__all__ = ["BetaRun", "ThinnedRun", "neighbour_overlaps", "overlaps", "thin"]


@dataclass(frozen=True, slots=True, eq=False)
class BetaRun:
    """One thermalised chain: its beta, E (the action divided by beta) and an observable, measured together."""

    beta: float
    action: ArrayLike
    observable: ArrayLike


@dataclass(frozen=True, slots=True, eq=False)
class ThinnedRun:
    """A run's nearly independent samples, in order, and where they come from.

    `n`, `tau_int` and `stride` are those of the run; `tau_left` and `block`, the length to resample in, count samples.
    """

    beta: float
    n: int
    tau_int: float
    stride: int
    energies: Floats
    observables: Floats
    tau_left: float
    block: int


def thin(run: BetaRun) -> ThinnedRun:
    """Return every tau_int-th measurement of the run, tau_int being the larger one of E and of the observable."""
    try:
        if not np.isfinite(run.beta):
            raise SpecError("`beta` must be finite")
        energies, observables = as_series(run.action, "action"), as_series(run.observable, "observable")
        if energies.size != observables.size:
            raise SpecError(
                "`action` and `observable` must be measured together. "
                f"Got {energies.size} and {observables.size} measurements"
            )
        tau = max(gamma_method(energies).tau_int, gamma_method(observables).tau_int)
        block = block_length(tau, energies.size)
        stride = max(1, round(tau))
        # Counted from the end: what is dropped is nearest to the start of the chain.
        kept = slice((energies.size - 1) % stride, None, stride)
        thin_energies, thin_observables = energies[kept], observables[kept]
        tau_left = max(gamma_method(thin_energies).tau_int, gamma_method(thin_observables).tau_int)
    except SpecError as cause:
        raise SpecError(f"run at beta = {run.beta:g}: {cause}") from cause
    return ThinnedRun(
        beta=float(run.beta),
        n=energies.size,
        tau_int=tau,
        stride=stride,
        energies=thin_energies,
        observables=thin_observables,
        tau_left=tau_left,
        block=-(-block // stride),
    )


def neighbour_overlaps(runs: Sequence[BetaRun]) -> tuple[float, ...]:
    """Return the overlap, from 0 to 1, of each pair of runs next to each other in beta, however small."""
    return tuple(overlaps(sorted((thin(run) for run in runs), key=lambda run: run.beta)))


def overlaps(runs: Sequence[ThinnedRun]) -> list[float]:
    """Return the overlap of each run with the next, in the order given."""
    return [pair_overlap(a.beta, a.energies, b.beta, b.energies) for a, b in pairwise(runs)]
