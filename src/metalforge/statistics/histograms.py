r"""Multi-histogram reweighting of many chains in a few milliseconds, with replicas for its errors.

The weight of a configuration is exp(-beta E) with E the action divided by beta, not a density; for the Wilson action
E = sum_p (1 - Re tr U_p / 3) over all plaquettes of the lattice. Averages at a target beta are

    <O>(beta) = sum_n w_n O_n,     w_n ~ exp(-beta E_n) / sum_j N_j exp(f_j - beta_j E_n)

over the samples of all runs. `mbar` has the equations for f; the weight depends on E alone, so rows are first added up
in narrow bins of E (a 24th of its standard deviation; the bin stands at the mean E of its rows). That is the original
form (A. M. Ferrenberg and R. H. Swendsen, Phys. Rev. Lett. 63 (1989) 1195), and makes the cost independent of the
number of rows. A row of a chain with tau counts as 1 / (2 tau) independent samples.

Errors: every chain is cut in blocks, and a replica multiplies block b by a weight g_b drawn from the exponential
distribution (the Bayesian bootstrap, D. B. Rubin, Ann. Stat. 9 (1981) 130). The number of samples N_k at each beta_k
changes with the weights and the equations are solved again, so that a replica is what a campaign with another share of
data at each beta would have found. Hence chains need not be long: one that is a single block enters the error by how
far it is from what the others say. Blocks of length b miss correlations across their borders, a part tau / b of the
variance for an exponential autocorrelation, and B blocks scatter about a mean of their own: both are made up for,

    error = spread * sqrt((B + 1) / (B - 1) / (1 - (tau / b) (1 - exp(-b / tau)))),     B = 1 / sum_b share_b^2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .estimate import Floats
from .mbar import first_guess, free_energies, parts

BINS_PER_SPREAD = 24.0
"""Bins of E in one standard deviation: the error of a weight inside a bin is then of the order 1e-4."""
MOMENTS = 5
"""Powers 0 .. 4 of the observable: B4 needs four."""
BEYOND = 0.5
"""How far beyond the outermost beta the peak is looked for, in 1 / sd(E): three quarters of the samples still count."""
NEGLIGIBLE = 1e-6
"""Part of a distribution that may be where no sample comes."""
MIN_OVERLAP = 0.06
"""Least overlap between neighbours: 0.03 off the diagonal of the overlap matrix, the advice of Klimovich et al."""
MIN_EFFECTIVE = 10.0
"""Fewest effective samples at the peak: below, a handful of configurations decide the answer."""


@dataclass(frozen=True, slots=True, eq=False)
class ChainRows:
    """One chain: its beta, E and an observable in every row, and the longer of their tau_int."""

    coordinate: float
    energy: Floats
    order: Floats
    tau: float


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """Chains joined: tables of bins by block, and the mixture's logarithm in each bin, for the data and replicas.

    `sums` has shape (blocks, bins), rows already multiplied by 1 / (2 tau); `tables` (moments, 1 + replicas, bins), the
    data first, each replica's over its mixture; `log_mixture` (bins) is that of the data. The observable is counted
    from `centre`, E from `origin`; `f` are the free energies at the `coordinates`.
    """

    coordinates: Floats
    f: Floats
    energy: Floats
    origin: float
    spread: float
    centre: float
    sums: Floats
    tables: Floats
    log_mixture: Floats
    chain_of_block: NDArray[np.int64]
    blocking: Floats

    def moments(self, betas: Floats) -> Floats:
        """Return <(O - centre)^m>, m = 0 .. 4, of shape (moments, 1 + replicas, betas); m = 0 gives 1."""
        found = self.tables @ self._weights(betas).T
        return np.asarray(found / found[:1], dtype=np.float64)

    def row_weights(self, energy: Floats, beta: float) -> Floats:
        """Return the weights at beta of rows with these E, up to a common factor and to their chain's 1 / (2 tau)."""
        # The weight is smooth on the scale of a bin, the mixture is not: there are rows beyond the last bin's mean.
        exponents = np.interp(energy - self.origin, self.energy, -beta * self.energy - self.log_mixture)
        return np.asarray(np.exp(exponents - exponents.max()), dtype=np.float64)

    def weigh(self, energy: Floats, columns: Iterable[Floats], betas: Floats) -> Floats:
        """Return the sums of columns, each with a number for every row with these E, as rows weigh at each beta.

        Of shape (columns, betas), up to a factor of each beta; a row's 1 / (2 tau) is for the columns to hold.
        """
        nearest = np.searchsorted((self.energy[1:] + self.energy[:-1]) / 2, energy - self.origin)
        tables = np.array([np.bincount(nearest, column, minlength=self.energy.size) for column in columns])
        return np.asarray(tables @ self._weights(betas).T, dtype=np.float64)

    def shares(self, beta: float) -> Floats:
        """Return the part of the weight at beta that each block carries."""
        carried = self.sums @ self._weights(np.array([beta]))[0]
        return np.asarray(carried / carried.sum(), dtype=np.float64)

    def n_effective(self, betas: Floats) -> Floats:
        """Return how many independent samples carry the average at each beta: (sum w)^2 / sum w^2."""
        samples = self.sums.sum(axis=0)
        weights = self._weights(betas)
        return np.asarray((weights @ samples) ** 2 / (weights**2 @ samples), dtype=np.float64)

    def n_effective_of(self, beta: float, betas: Sequence[float], counts: Sequence[float]) -> float:
        r"""Return how many samples would carry the average at beta, had `counts` of them been at `betas`.

        With the density of states that the runs give, p_k(E) ~ Omega(E) exp(-beta_k E), the samples come from
        M(E) = sum_k N_k p_k(E), and one at E has the weight p(E) / M(E) at beta, so that

            (sum w)^2 / sum w^2 -> 1 / int p(E)^2 / M(E) dE.
        """
        if not len(betas):
            return 0.0
        shape = self._weights(np.array([beta, *betas])) * self.sums.sum(axis=0)
        density = shape / shape.sum(axis=1, keepdims=True)
        mixture = np.asarray(counts, dtype=np.float64) @ density[1:]
        there = mixture > 0
        if density[0][~there].sum() > NEGLIGIBLE:
            return 0.0
        return float(1 / np.sum(density[0][there] ** 2 / mixture[there]))

    def n_blocks(self, beta: float) -> float:
        """Return B, how many blocks of equal weight carry the average at beta."""
        return float(1 / np.sum(self.shares(beta) ** 2))

    def spread_to_error(self, beta: float) -> float:
        """Return what the spread of replicas is multiplied by to be an error; infinite for a single block."""
        share = self.shares(beta)
        n = 1 / np.sum(share**2)
        missing = np.sum(share * (share * self.blocking)) * n
        return float(np.sqrt((n + 1) / (n - 1) * missing)) if n > 1 + 1e-9 else float("inf")

    def pulls(self, chains: Sequence[ChainRows]) -> Floats:
        """Return how far each chain's <E> and <O> are from what all together give, in its own errors; shape (2, n)."""
        at, samples, weights = (
            np.array([c.coordinate for c in chains]),
            self.sums.sum(axis=0),
            self._weights(self.coordinates),
        )
        energies = self.origin + weights @ (samples * self.energy) / (weights @ samples)
        expected = [np.interp(at, self.coordinates, energies), self.centre + self.moments(at)[1, 0]]
        own = [[chain.energy for chain in chains], [chain.order for chain in chains]]
        rows = []
        for means, series in zip(expected, own, strict=True):
            error = [np.sqrt(2 * c.tau * np.var(x) / x.size) for c, x in zip(chains, series, strict=True)]
            rows.append((np.array([x.mean() for x in series]) - means) / np.array(error))
        return np.array(rows)

    def _weights(self, betas: Floats) -> Floats:
        exponents = -np.outer(betas, self.energy) - self.log_mixture
        return np.asarray(np.exp(exponents - exponents.max(axis=1, keepdims=True)), dtype=np.float64)


def _moments(chain: ChainRows, cell: NDArray[np.int64], centre: float, shape: tuple[int, int]) -> Floats:
    """Return sums of (X - centre)^m / (2 tau) over the rows of each cell (block, bin), m = 0 .. MOMENTS - 1."""
    power, shifted = np.full(cell.size, 1 / (2 * chain.tau)), chain.order - centre
    moments = np.empty((MOMENTS, *shape))
    for m in range(MOMENTS):
        moments[m] = np.bincount(cell, power, minlength=shape[0] * shape[1]).reshape(shape)
        power = power * shifted
    return moments


def join(
    chains: Sequence[ChainRows],
    blocks: Sequence[int],
    rng: np.random.Generator,
    n_replicas: int = 0,
    bins_per_spread: float = BINS_PER_SPREAD,
) -> Joint:
    """Return the chains joined, each cut in blocks of a length; raises `NotLocated` where neighbours hardly overlap.

    `bins_per_spread` bins make a standard deviation of E; with very many every row has its own: the form without bins.
    """
    everything = np.concatenate([chain.energy for chain in chains])
    origin = float(everything.mean())
    # Within one beta: over several the means' own distance would make the bins coarse.
    spread = float(np.median([chain.energy.std() for chain in chains])) or 1.0
    width = spread / bins_per_spread
    place = np.floor((everything - everything.min()) / width).astype(np.int64)
    used, bins = np.unique(place, return_inverse=True)
    energy = np.bincount(bins, everything - origin) / np.bincount(bins)

    centre = float(np.mean(np.concatenate([chain.order for chain in chains])))
    betas = np.unique([chain.coordinate for chain in chains])
    tables, owner, blocking, state_of_block = [], [], [], []
    start = 0
    for number, (chain, length) in enumerate(zip(chains, blocks, strict=True)):
        rows = chain.energy.size
        n_blocks = max(1, rows // length)
        # Cut evenly: the last block is not shorter than the others.
        block = np.minimum(np.arange(rows) * n_blocks // rows, n_blocks - 1)
        cell = block * used.size + bins[start : start + rows]
        tables.append(_moments(chain, cell, centre, (n_blocks, used.size)))
        owner += [number] * n_blocks
        ratio = chain.tau * n_blocks / rows
        blocking += [1 / (1 - ratio * (1 - np.exp(-1 / ratio)))] * n_blocks
        state_of_block += [int(np.searchsorted(betas, chain.coordinate))] * n_blocks
        start += rows
    sums = np.concatenate(tables, axis=1)
    member = np.zeros((len(owner), betas.size))
    member[np.arange(len(owner)), state_of_block] = 1.0

    factors = np.ones((1 + n_replicas, len(owner)))
    factors[1:] = rng.exponential(size=(n_replicas, len(owner)))
    per_block = sums[0].sum(axis=1)
    counts = (factors * per_block) @ member
    f = free_energies(betas, energy, counts[:1], factors[:1] @ sums[0], first_guess(betas, energy, sums[0], member))
    if n_replicas:
        f = np.concatenate([f, free_energies(betas, energy, counts[1:], factors[1:] @ sums[0], f[0])])
    tilted = np.outer(betas, energy)
    log_mixture = np.concatenate(
        [_log_sum(np.log(counts[part]) + f[part], tilted) for part in parts(len(counts), tilted.size)]
    )
    # The mixture of a replica is that of the data times a factor in each bin; a common factor drops out.
    change = log_mixture[0] - log_mixture
    tables = (factors @ sums) * np.exp(change - change.max(axis=1, keepdims=True))
    return Joint(
        coordinates=betas,
        f=f[0],
        energy=energy,
        origin=origin,
        spread=spread,
        centre=centre,
        sums=sums[0],
        tables=tables,
        log_mixture=log_mixture[0],
        chain_of_block=np.array(owner),
        blocking=np.array(blocking),
    )


def _log_sum(heights: Floats, tilted: Floats) -> Floats:
    """Return ln sum_k exp(height_k - beta_k E) of each row of heights in each bin."""
    exponents = heights[:, :, None] - tilted[None]
    top = exponents.max(axis=1)
    return np.asarray(top + np.log(np.exp(exponents - top[:, None]).sum(axis=1)), dtype=np.float64)


def variance(moments: Floats) -> Floats:
    """Return <O^2> - <O>^2 from moments about a constant."""
    return np.asarray(moments[2] - moments[1] ** 2, dtype=np.float64)


def refined_maxima(grid: Floats, curves: Floats, top: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return place and height of each curve's maximum, by the parabola through its highest point and neighbours."""
    row = np.arange(len(top))
    middle = np.clip(top, 1, grid.size - 2)
    left, centre, right = curves[row, middle - 1], curves[row, middle], curves[row, middle + 1]
    bend = left - 2 * centre + right
    inside = (middle == top) & (bend < 0)
    shift = np.where(inside, 0.5 * (left - right) / np.where(inside, bend, -1.0), 0.0)
    place = np.where(inside, grid[middle] + shift * (grid[1] - grid[0]), grid[top])
    height = np.where(inside, centre - 0.25 * (left - right) * shift, curves[row, top])
    return place, height


def half_width(grid: Floats, curve: Floats, top: int) -> float:
    """Return half of the distance between the places left and right at which the curve has fallen to half.

    Where it does not fall so far within what is covered, that side ends there.
    """
    fallen = curve < curve[top] / 2
    left = np.flatnonzero(fallen[:top])
    right = np.flatnonzero(fallen[top:])
    low = grid[left[-1]] if left.size else grid[0]
    high = grid[top + right[0]] if right.size else grid[-1]
    return float((high - low) / 2)
