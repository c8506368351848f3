r"""Multi-histogram reweighting: from runs at a few beta to <O>(beta) and its susceptibility at any beta between.

The weight of a configuration is exp(-beta E) with E = sum_p (1 - Re tr U_p / 3), summed over all plaquettes of the
lattice: the action divided by beta, not a density. Averages at a target beta are

    <O>(beta) = sum_n w_n O_n,     w_n ~ exp(-beta E_n) / sum_j N_j exp(f_j - beta_j E_n)

over the samples of all runs (`mbar` has the equations for f). Three choices are made for correlated chains:

* MBAR wants independent samples and weighs runs by their number. Each run is thinned to every tau_int-th measurement
  (the larger tau_int of E and O). That keeps the runs' relative weights right and costs 4 % in the error; a stride of
  2 tau_int, the statistical inefficiency, would cost 15 %.
* What correlation remains is met by resampling in blocks, each run on its own (`resample.block_length` of the
  unthinned run, divided by the stride).
* Every bootstrap replica solves the equations again, so the errors include those of f.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from metalforge.core.errors import SpecError

from .estimate import Floats
from .gamma import gamma_method
from .mbar import free_energies, membership, newton_shift
from .resample import block_indices, spread_to_error
from .runs import BetaRun, ThinnedRun, overlaps, thin
from .susceptibility import checked_volume

__all__ = ["JointRuns", "ReweightedCurve", "RunSummary", "combine", "reweight"]

MIN_OVERLAP = 0.06
"""Least overlap between neighbours: 0.03 off the diagonal of the overlap matrix, the advice of Klimovich et al."""
MIN_EFFECTIVE = 10.0
"""Fewest effective samples at a target beta: below, a handful of configurations decide the answer."""
MAX_PULL = 5.0
"""Largest disagreement, in standard errors, between a run's own <E> and the joint one; chance gives less than 4."""


class RunSummary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run entered: its tau_int, the stride it was thinned with, what was left, and the bootstrap's block.

    `pull` is (own <E> - joint <E>) / error of the own one: it should scatter around 0 by less than 1.
    """

    beta: float
    n: int
    tau_int: float
    stride: int
    n_used: int
    block: int
    pull: float


@dataclass(frozen=True, slots=True, eq=False)
class JointRuns:
    """Runs joined by MBAR: thinned samples, their mixture weights, and the same for each bootstrap replica.

    `energies` are counted from `energy_origin`; `log_mixture` is ln sum_j N_j exp(f_j - beta_j E_n); a row of
    `replicas` multiplies the samples' weights in that replica, and the replicas' spread times `spread_to_error` is an
    error; `inefficiency` is 2 tau_int left in each sample's run.
    """

    runs: tuple[RunSummary, ...]
    overlaps: tuple[float, ...]
    betas: Floats
    f: Floats
    energies: Floats
    energy_origin: float
    observables: Floats
    log_mixture: Floats
    inefficiency: Floats
    replicas: Floats
    spread_to_error: float

    def weights(self, betas: Floats) -> Floats:
        """Return the weights of the samples at each target beta, of shape (targets, samples), summing to 1."""
        exponents = -np.outer(betas, self.energies) - self.log_mixture
        weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float64)

    def n_effective(self, betas: Floats) -> Floats:
        """Return how many independent samples carry the average at each target: 1 / sum_n 2 tau_n w_n^2."""
        return np.asarray(1.0 / (self.weights(betas) ** 2 @ self.inefficiency), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class ReweightedCurve:
    """<O>, <O^2> and chi = V_s (<O^2> - <O>^2) at each beta, with bootstrap errors and effective sample counts."""

    beta: Floats
    mean: Floats
    mean_error: Floats
    square: Floats
    square_error: Floats
    susceptibility: Floats
    susceptibility_error: Floats
    n_effective: Floats


def combine(runs: Sequence[BetaRun], *, rng: np.random.Generator | int, n_bootstrap: int = 100) -> JointRuns:
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
    thinned = sorted((thin(run) for run in runs), key=lambda run: run.beta)
    shared = overlaps(thinned)
    for (low, high), overlap in zip(pairwise(thinned), shared, strict=True):
        if overlap < MIN_OVERLAP:
            raise SpecError(
                f"neighbouring runs must overlap by at least {MIN_OVERLAP}. Got {overlap:.2g} between "
                f"beta = {low.beta:g} and {high.beta:g}\nhint: add a run near beta = {(low.beta + high.beta) / 2:.6g}"
            )

    betas = np.array([run.beta for run in thinned])
    counts = np.array([float(run.energies.size) for run in thinned])
    energies = np.concatenate([run.energies for run in thinned])
    # Only differences of E matter; counted from the mean, beta E keeps its digits.
    origin = float(np.mean(energies))
    energies = energies - origin
    f = free_energies(betas, counts, energies)
    p, _ = membership(betas, counts, f, energies)
    f = f + newton_shift(p, counts, np.ones_like(energies))[0]
    p, log_mixture = membership(betas, counts, f, energies)

    joint_means = (p / counts[:, None]) @ energies + origin
    summaries = tuple(_summary(run, float(mean)) for run, mean in zip(thinned, joint_means, strict=True))

    generator = np.random.default_rng(rng)
    replicas = np.empty((n_bootstrap, energies.size))
    for replica in replicas:
        draws = np.concatenate([_draws(run, generator) for run in thinned])
        replica[:] = draws / newton_shift(p, counts, draws)[1]

    return JointRuns(
        runs=summaries,
        overlaps=tuple(shared),
        betas=betas,
        f=f,
        energies=energies,
        energy_origin=origin,
        observables=np.concatenate([run.observables for run in thinned]),
        log_mixture=log_mixture,
        inefficiency=np.concatenate([np.full(run.energies.size, 2 * run.tau_left) for run in thinned]),
        replicas=replicas,
        spread_to_error=float(np.mean([spread_to_error(run.energies.size, run.block) for run in thinned])),
    )


def reweight(joint: JointRuns, betas: ArrayLike, *, spatial_volume: float) -> ReweightedCurve:
    """Return the curves of <O>, <O^2> and chi at `betas`; chi = `spatial_volume` (<O^2> - <O>^2).

    Raises
    ------
    SpecError
        A target beta is carried by fewer than 10 effective samples: it lies too far outside the runs.
    """
    targets = checked_targets(joint, betas)
    volume = checked_volume(spatial_volume)
    weights = joint.weights(targets)
    # About a constant near the mean, <O^2> - <O>^2 loses no digits.
    centre = float(np.mean(joint.observables))
    shifted = joint.observables - centre

    def averages(rows: Floats) -> tuple[Floats, Floats, Floats]:
        norm = rows @ weights.T
        first = (rows * shifted) @ weights.T / norm
        second = (rows * shifted**2) @ weights.T / norm
        return first + centre, second + 2 * centre * first + centre**2, volume * (second - first**2)

    mean, square, chi = (row[0] for row in averages(np.ones((1, shifted.size))))
    mean_error, square_error, chi_error = (
        joint.spread_to_error * np.std(rows, axis=0, ddof=1) for rows in averages(joint.replicas)
    )
    return ReweightedCurve(
        beta=targets,
        mean=mean,
        mean_error=mean_error,
        square=square,
        square_error=square_error,
        susceptibility=chi,
        susceptibility_error=chi_error,
        n_effective=joint.n_effective(targets),
    )


def checked_targets(joint: JointRuns, betas: ArrayLike) -> Floats:
    """Return `betas` as an array, if the runs reach all of them."""
    targets = np.atleast_1d(np.asarray(betas, dtype=np.float64))
    if targets.ndim != 1 or targets.size == 0 or not np.all(np.isfinite(targets)):
        raise SpecError(f"`betas` must be a list of finite numbers. Got {betas!r}")
    effective = joint.n_effective(targets)
    if np.min(effective) < MIN_EFFECTIVE:
        worst = float(targets[np.argmin(effective)])
        raise SpecError(
            f"each target beta needs {MIN_EFFECTIVE:g} effective samples. Got {np.min(effective):.1f} at "
            f"beta = {worst:g} from runs between {joint.betas[0]:g} and {joint.betas[-1]:g}\n"
            f"hint: add a run near beta = {worst:.6g}"
        )
    return targets


def _draws(run: ThinnedRun, rng: np.random.Generator) -> Floats:
    """Return how often each sample of the run is drawn in one resampled chain."""
    n = run.energies.size
    return np.bincount(block_indices(n, run.block, rng), minlength=n).astype(np.float64)


def _summary(run: ThinnedRun, joint_mean: float) -> RunSummary:
    own = gamma_method(run.energies)
    pull = (own.mean - joint_mean) / own.error if own.error > 0 else 0.0
    if abs(pull) > MAX_PULL:
        raise SpecError(
            f"run at beta = {run.beta:g}: its <E> = {own.mean:.6g} is {abs(pull):.1f} standard errors from the "
            f"{joint_mean:.6g} that all runs together give there\nhint: E must be sum_p (1 - Re tr U_p/3) over the "
            "whole lattice (not a density, not beta times it, not the plaquette), from a thermalised chain at that beta"
        )
    return RunSummary(
        beta=run.beta,
        n=run.n,
        tau_int=run.tau_int,
        stride=run.stride,
        n_used=run.energies.size,
        block=run.block,
        pull=pull,
    )
