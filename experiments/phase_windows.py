"""Windows of lattice runs with the phase they were in: plaquettes go in, the measured Polyakov loop is the label.

Chains of heat bath and overrelaxation on Ns^3 x Nt lattices at several couplings, hot and cold starts in turn. A
window is a run of updates; what a network sees of each is the spatial and temporal plaquette and their difference, in
units of the training windows' mean and deviation. Its label is whether |L|, projected on the nearest Z3 axis and
averaged over the window, is above the threshold that parts the two groups of training windows best (two means). The
coupling is neither an input nor a label, and test chains have couplings and seeds that training chains do not have.
"""

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.lattice.chain import ChainSpec, HeatbathSpec

from .cache import cached_arrays
from .chains import measured, sweeping

OBSERVED = ("plaquette_spatial", "plaquette_temporal", "polyakov_z3")


class PhaseCorpusSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The chains of a corpus."""

    dims: tuple[int, int, int, int] = (8, 8, 8, 4)
    train: tuple[float, ...] = (5.50, 5.58, 5.64, 5.67, 5.69, 5.71, 5.76, 5.85)
    test: tuple[float, ...] = (5.54, 5.61, 5.66, 5.68, 5.70, 5.73, 5.80)
    warmup: int = 150
    updates: int = 1200
    window: int = 10
    seed: int = 2026
    sweeps: HeatbathSpec = HeatbathSpec(heatbath=1, overrelax=2)


class PhaseWindows(NamedTuple):
    """Inputs (windows, steps, 3) and labels (windows,), and the chain each window is from."""

    inputs: NDArray[np.float64]
    labels: NDArray[np.int64]
    chain: NDArray[np.int64]


def phase_windows(spec: PhaseCorpusSpec | None = None) -> tuple[PhaseWindows, PhaseWindows]:
    """Return training and test windows, from the cache if they were made before."""
    spec = spec or PhaseCorpusSpec()
    series = cached_arrays("phase-windows", spec, lambda: _run_chains(spec))
    train = [series[f"train{i}"] for i in range(len(spec.train))]
    test = [series[f"test{i}"] for i in range(len(spec.test))]
    seen = np.concatenate([_windows(chain[:, :3], spec.window) for chain in train])
    loops = np.concatenate([_windows(chain[:, 3:], spec.window).mean(axis=(1, 2)) for chain in train])
    mean, deviation = seen.mean(axis=(0, 1)), seen.std(axis=(0, 1))
    threshold = _two_means(loops)
    return _labelled(train, spec, mean, deviation, threshold), _labelled(test, spec, mean, deviation, threshold)


def _run_chains(spec: PhaseCorpusSpec) -> dict[str, NDArray[np.float64]]:
    found = {}
    for part, betas in (("train", spec.train), ("test", spec.test)):
        for i, beta in enumerate(betas):
            asked = ChainSpec(
                dims=spec.dims,
                beta=beta,
                seed=spec.seed,
                stream=i if part == "train" else 100 + i,
                start="hot" if i % 2 else "cold",
                heatbath=spec.sweeps,
            )
            chain = sweeping(asked, warmup=spec.warmup, observed=OBSERVED)
            spatial, temporal, loop = measured(chain, spec.updates).T
            found[f"{part}{i}"] = np.column_stack([spatial, temporal, temporal - spatial, loop])
    return found


def _windows(series: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """Return windows that do not overlap, (windows, length, columns)."""
    count = len(series) // length
    return series[: count * length].reshape(count, length, -1)


def _two_means(values: NDArray[np.float64]) -> float:
    """Return the threshold that parts values into two groups of least variance."""
    ordered = np.sort(values)
    cuts = range(1, len(ordered))
    spread = [ordered[:k].var() * k + ordered[k:].var() * (len(ordered) - k) for k in cuts]
    best = int(np.argmin(spread)) + 1
    return float((ordered[best - 1] + ordered[best]) / 2)


def _labelled(
    chains: list[NDArray[np.float64]],
    spec: PhaseCorpusSpec,
    mean: NDArray[np.float64],
    deviation: NDArray[np.float64],
    threshold: float,
) -> PhaseWindows:
    inputs = [(_windows(chain[:, :3], spec.window) - mean) / deviation for chain in chains]
    loops = [_windows(chain[:, 3:], spec.window).mean(axis=(1, 2)) for chain in chains]
    return PhaseWindows(
        np.concatenate(inputs),
        (np.concatenate(loops) > threshold).astype(np.int64),
        np.repeat(np.arange(len(chains)), [len(loop) for loop in loops]),
    )
