r"""Multi-histogram reweighting: from runs at a few beta to <O>(beta), its susceptibility and B4 at any beta between.

The weight of a configuration is exp(-beta E) with E the action divided by beta, not a density; for the Wilson action
E = sum_p (1 - Re tr U_p / 3) over all plaquettes of the lattice. Averages at a target beta are

    <O>(beta) = sum_n w_n O_n,     w_n ~ exp(-beta E_n) / sum_j N_j exp(f_j - beta_j E_n)

over the samples of all runs (`mbar` has the equations for f, `histograms` the joining and its errors). A run counts as
n / (2 tau_int) samples, with the larger tau_int of E and O.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core import SpecError

from .estimate import Floats, as_series
from .gamma import gamma_method
from .histograms import BINS_PER_SPREAD, MIN_EFFECTIVE, ChainRows, Joint, join, variance
from .mbar import pair_overlap
from .susceptibility import checked_volume, kurtosis

MIN_OVERLAP = 0.06
"""Least overlap between neighbours: 0.03 off the diagonal of the overlap matrix, the advice of Klimovich et al."""
MAX_PULL = 5.0
"""Largest disagreement, in standard errors, between a run's own <E> and the joint one; chance gives less than 4."""


@dataclass(frozen=True, slots=True, eq=False)
class BetaRun:
    """One thermalised chain: its beta, E (the action divided by beta) and an observable, measured together."""

    beta: float
    action: ArrayLike
    observable: ArrayLike


@dataclass(frozen=True, slots=True, eq=False)
class ReweightedCurve:
    """<O>, <O^2>, chi = V_s (<O^2> - <O>^2) and B4 at each beta, with errors and effective sample counts."""

    beta: Floats
    mean: Floats
    mean_error: Floats
    square: Floats
    square_error: Floats
    susceptibility: Floats
    susceptibility_error: Floats
    b4: Floats
    b4_error: Floats
    n_effective: Floats


def combine(
    runs: Sequence[BetaRun],
    *,
    rng: np.random.Generator | int,
    n_bootstrap: int = 100,
    bins_per_spread: float = BINS_PER_SPREAD,
) -> Joint:
    """Return the runs joined for reweighting, with `n_bootstrap` replicas drawn from `rng` (a generator or a seed).

    Raises
    ------
    SpecError
        A series is unfit or too short for its tau_int; neighbouring runs do not overlap; or a run's own <E> is not
        what the others predict there, as with a wrong sign or normalisation of E or a chain that is not thermalised.
    """
    if not runs:
        raise SpecError("reweighting needs at least one run. Got none")
    if n_bootstrap < 2:
        raise SpecError(f"`n_bootstrap` must be at least 2. Got {n_bootstrap}\nhint: 100 gives errors to 7 %")
    chains = sorted((_checked(run) for run in runs), key=lambda chain: chain.beta)
    for low, high in pairwise(chains):
        if (overlap := pair_overlap(low.beta, low.energy, high.beta, high.energy)) < MIN_OVERLAP:
            raise SpecError(
                f"neighbouring runs must overlap by at least {MIN_OVERLAP}. Got {overlap:.2g} between "
                f"beta = {low.beta:g} and {high.beta:g}\nhint: add a run near beta = {(low.beta + high.beta) / 2:.6g}"
            )
    joint = join(chains, np.random.default_rng(rng), n_bootstrap, bins_per_spread)
    for chain, pull in zip(chains, joint.pulls(chains)[0], strict=True):
        if abs(pull) > MAX_PULL:
            raise SpecError(
                f"run at beta = {chain.beta:g}: its <E> = {chain.energy.mean():.6g} is {abs(pull):.1f} standard errors "
                "from the one that all runs together give there\nhint: E must be the action divided by beta, for the "
                "Wilson action sum_p (1 - Re tr U_p/3) over the whole lattice (not a density, not beta times it, not "
                "the plaquette), from a thermalised chain at that beta"
            )
    return joint


def reweight(joint: Joint, betas: ArrayLike, *, spatial_volume: float) -> ReweightedCurve:
    """Return the curves of <O>, <O^2>, chi and B4 at `betas`; chi = `spatial_volume` (<O^2> - <O>^2).

    Raises
    ------
    SpecError
        A target beta is carried by fewer than 10 effective samples: it lies too far outside the runs.
    """
    targets = checked_targets(joint, betas)
    volume = checked_volume(spatial_volume)
    moments = joint.moments(targets)
    scale = np.array([joint.spread_to_error(float(beta)) for beta in targets])

    def with_error(values: Floats) -> tuple[Floats, Floats]:
        return values[0], scale * np.std(values[1:], axis=0, ddof=1)

    mean, mean_error = with_error(joint.centre + moments[1])
    square, square_error = with_error(moments[2] + 2 * joint.centre * moments[1] + joint.centre**2)
    chi, chi_error = with_error(volume * variance(moments))
    b4, b4_error = with_error(kurtosis(moments[1:]))
    return ReweightedCurve(
        beta=targets,
        mean=mean,
        mean_error=mean_error,
        square=square,
        square_error=square_error,
        susceptibility=chi,
        susceptibility_error=chi_error,
        b4=b4,
        b4_error=b4_error,
        n_effective=joint.n_effective(targets),
    )


def checked_targets(joint: Joint, betas: ArrayLike) -> Floats:
    """Return `betas` as an array, if the runs reach all of them."""
    targets = np.atleast_1d(np.asarray(betas, dtype=np.float64))
    if targets.ndim != 1 or targets.size == 0 or not np.all(np.isfinite(targets)):
        raise SpecError(f"`betas` must be a list of finite numbers. Got {betas!r}")
    effective = joint.n_effective(targets)
    if np.min(effective) < MIN_EFFECTIVE:
        worst = float(targets[np.argmin(effective)])
        raise SpecError(
            f"each target beta needs {MIN_EFFECTIVE:g} effective samples. Got {np.min(effective):.1f} at "
            f"beta = {worst:g} from runs between {joint.coordinates[0]:g} and {joint.coordinates[-1]:g}\n"
            f"hint: add a run near beta = {worst:.6g}"
        )
    return targets


def _checked(run: BetaRun) -> ChainRows:
    """Return the run with the larger tau_int of E and of its observable, and the blocks it is resampled in."""
    from .resample import block_length

    try:
        if not np.isfinite(run.beta):
            raise SpecError("`beta` must be finite")
        energy, observable = as_series(run.action, "action"), as_series(run.observable, "observable")
        if energy.size != observable.size:
            raise SpecError(
                "`action` and `observable` must be measured together. "
                f"Got {energy.size} and {observable.size} measurements"
            )
        tau = max(gamma_method(energy).tau_int, gamma_method(observable).tau_int)
        return ChainRows(float(run.beta), energy, observable, tau, block_length(tau, energy.size))
    except SpecError as cause:
        raise SpecError(f"run at beta = {run.beta:g}: {cause}") from cause
