r"""The transition curve of `scaling`, fitted to the peaks of a corpus's training chains.

For each lattice the later halves of its training chains are joined by multi-histogram reweighting about the coupling of
the largest susceptibility of |L|; the peak of the joint curve has a place, an error from replicas and half a breadth.
The peaks of an N_t give its place in large volumes, one finite-size term for all; the curve through those has the
variable and the degree that are off least for an N_t left out. With four N_t and few forms to choose from that error is
a little too small.

Beside it stands the published two-loop curve of asymptotic scaling, a lambda = f(beta), through one known point.

    f(beta) = (6 b_0 / beta)^(-b_1 / 2 b_0^2) exp(-beta / 12 b_0),    b_0 = 11 / 16 pi^2,  b_1 = 102 / (16 pi^2)^2

so that a peak at beta_1 on N_1 means f(beta_2) = f(beta_1) N_1 / N_2 on N_2.
"""

from collections.abc import Sequence
from math import log, pi, prod
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import tomli_w
from scipy.optimize import brentq

from metalforge.conductor.curves import VARIABLES, KnownExtent, ScalingCurve
from metalforge.core.errors import SpecError
from metalforge.statistics.gamma import pooled_tau
from metalforge.statistics.histograms import ChainRows, half_width, join, refined_maxima, variance

from .corpus import ChainRecord, Dims

B_0, B_1 = 11 / (16 * pi**2), 102 / (16 * pi**2) ** 2


def two_loop(beta: float) -> float:
    """Return log(a lambda) of asymptotic scaling."""
    return -B_1 / (2 * B_0**2) * log(6 * B_0 / beta) - beta / (12 * B_0)


def two_loop_peak(n_t: int, known: tuple[int, float]) -> float:
    """Return the coupling of the peak on N_t that asymptotic scaling gives from a `known` (N_t, coupling)."""
    n_known, beta = known
    wanted = two_loop(beta) + log(n_known / n_t)
    return float(brentq(lambda b: two_loop(b) - wanted, 1.0, 50.0))


REACH = 4.0
"""Couplings that are joined: within so many 1 / sd(E) of the largest susceptibility, one on either side at least."""
REPLICAS = 50
LEAST_ERROR, LEAST_KNOWN = 5e-4, 4e-3
"""Errors of a peak, and of an N_t, are no smaller: short chains are not that exact."""


class LatticePeak(NamedTuple):
    """The peak of a lattice: its coupling, error and half breadth."""

    dims: Dims
    beta: float
    error: float
    width: float


def lattice_peak(chains: Sequence[ChainRecord]) -> LatticePeak:
    """Return the peak of the susceptibility of |L| from chains of one lattice."""
    dims = chains[0].entry.dims
    volume = prod(dims)
    by_beta: dict[float, list[ChainRecord]] = {}
    for chain in chains:
        by_beta.setdefault(chain.entry.beta, []).append(chain)
    betas = sorted(by_beta)
    energies = {b: [_later(6 * volume * (1 - c.column("plaquette"))) for c in by_beta[b]] for b in betas}
    loops = {b: [_later(c.loop) for c in by_beta[b]] for b in betas}
    top = max(betas, key=lambda b: float(np.concatenate(loops[b]).var()))
    spread = float(np.concatenate(energies[top]).std())
    at = betas.index(top)
    near = [b for i, b in enumerate(betas) if abs(b - top) * spread < REACH or abs(i - at) <= 1]
    rows, blocks = [], []
    for beta in near:
        tau = max(float(pooled_tau(np.zeros(len(loops[beta])), loops[beta], 0.0)[0]), 0.5)
        block = int(np.clip(6 * tau, 5, min(map(len, loops[beta])) // 3))
        rows += [ChainRows(beta, e, x, tau) for e, x in zip(energies[beta], loops[beta], strict=True)]
        blocks += [block] * len(loops[beta])
    joint = join(rows, blocks, np.random.default_rng(21), REPLICAS)
    grid = np.linspace(near[0], near[-1], 801)
    curves = variance(joint.moments(grid))
    tops = np.argmax(curves, axis=1)
    places, _ = refined_maxima(grid, curves, tops)
    error = float(np.std(places[1:], ddof=1)) * min(joint.spread_to_error(float(places[0])), 5.0)
    return LatticePeak(dims, float(places[0]), max(error, LEAST_ERROR), half_width(grid, curves[0], int(tops[0])))


def _later(series: np.ndarray) -> np.ndarray:
    return series[len(series) // 2 :]


def peaks_of(chains: Sequence[ChainRecord]) -> list[LatticePeak]:
    """Return the peak of every lattice that has sound sweeps without quarks."""
    lattices: dict[Dims, list[ChainRecord]] = {}
    for chain in chains:
        if chain.entry.algorithm == "heatbath" and not chain.entry.fault:
            lattices.setdefault(chain.entry.dims, []).append(chain)
    return [lattice_peak(some) for some in lattices.values()]


def fit_curve(peaks: Sequence[LatticePeak], source: str) -> ScalingCurve:
    """Return the curve through these peaks, with what it is off by where an N_t is left out."""
    known, h = _large_volumes(peaks)
    if len(known) < 2:
        raise SpecError(f"a curve over N_t needs peaks of two at least. Got N_t = {[one.n_t for one in known]}")
    forms = [(variable, degree) for variable in VARIABLES for degree in range(1, min(3, len(known)))]
    variable, degree = min(forms, key=lambda form: _off(known, *form))
    widths = np.array([(log(2 * p.dims[3] / p.dims[0]), log(max(p.width, 1e-3))) for p in peaks])
    several = np.ptp(widths[:, 0]) > 0
    slope, at_two = np.polyfit(widths[:, 0], widths[:, 1], 1) if several else (3.0, float(widths[:, 1].mean()))
    return ScalingCurve(
        source=source,
        unit=max(_off(known, variable, degree), LEAST_ERROR) if len(known) > 2 else 0.1,
        variable=msgspec.convert(variable, Literal["log", "root"]),
        powers=_powers(known, variable, degree),
        finite_size=h,
        width_at_two=float(np.exp(at_two)),
        width_power=float(slope),
        known=known,
    )


def without(peaks: Sequence[LatticePeak], n_t: int, curve: ScalingCurve) -> ScalingCurve:
    """Return a curve of the same form that has not seen an N_t."""
    known, h = _large_volumes([peak for peak in peaks if peak.dims[3] != n_t])
    degree = min(len(curve.powers) - 1, len(known) - 1)
    source = f"{curve.source}, without N_t = {n_t}"
    powers = _powers(known, curve.variable, degree)
    return msgspec.structs.replace(curve, source=source, powers=powers, finite_size=h, known=known)


def _powers(known: Sequence[KnownExtent], variable: str, degree: int) -> tuple[float, ...]:
    found = np.polyfit([VARIABLES[variable](one.n_t) for one in known], [one.mean for one in known], degree)
    return tuple(float(p) for p in found[::-1])


def _off(known: Sequence[KnownExtent], variable: str, degree: int) -> float:
    """Return the root mean square of what a form is off by for an N_t that is left out."""
    off = []
    for one in known:
        others = [other for other in known if other is not one]
        powers = _powers(others, variable, min(degree, len(others) - 1))
        off.append(one.mean - float(np.polynomial.polynomial.polyval(VARIABLES[variable](one.n_t), powers)))
    return float(np.sqrt(np.mean(np.square(off))))


def _large_volumes(peaks: Sequence[LatticePeak]) -> tuple[tuple[KnownExtent, ...], float]:
    """Return the place of every N_t in large volumes and h, which is held near 0 where the volumes do not say."""
    extents = sorted({peak.dims[3] for peak in peaks})
    columns = np.array([[float(p.dims[3] == n) for n in extents] + [-((p.dims[3] / p.dims[0]) ** 3)] for p in peaks])
    errors, wanted = np.array([p.error for p in peaks]), np.array([p.beta for p in peaks])
    matrix = np.vstack([columns / errors[:, None], [0.0] * len(extents) + [1 / 0.3]])
    found = np.linalg.lstsq(matrix, np.append(wanted / errors, 0.0), rcond=None)[0]
    covariance = np.linalg.inv(matrix.T @ matrix)
    scatter = max(1.0, float(np.sqrt(np.mean(((columns @ found - wanted) / errors) ** 2))))
    known = tuple(
        KnownExtent(n_t=n, mean=float(found[i]), error=max(float(np.sqrt(covariance[i, i])) * scatter, LEAST_KNOWN))
        for i, n in enumerate(extents)
    )
    return known, float(found[-1])


def as_toml(curve: ScalingCurve, peaks: Sequence[LatticePeak]) -> str:
    """Return the file that `scaling` reads, with the peaks it was fitted to as comments."""
    lines = [
        "# Where the quenched transition is on a lattice N_s^3 x N_t, and how broad.",
        "# Written by `python -m experiments heads transition`.",
        "# Peaks of the susceptibility of |L| on training chains, coupling (error) half breadth:",
        *(f"# {'x'.join(map(str, p.dims))}: {p.beta:.5f} ({p.error:.5f}) {p.width:.4f}" for p in peaks),
        "",
    ]
    return "\n".join(lines) + tomli_w.dumps(msgspec.to_builtins(curve))
