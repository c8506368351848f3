"""Windows of lattice runs with the phase they were in: plaquettes go in, the measured Polyakov loop is the label.

Chains of heat bath and overrelaxation on Ns^3 x Nt lattices at several couplings, hot and cold starts in turn. A
window is a run of updates; what a network sees of each is the spatial and temporal plaquette and their difference, in
units of the training windows' mean and deviation. Its label is whether |L|, projected on the nearest Z3 axis and
averaged over the window, is above the threshold that parts the two groups of training windows best (two means). The
coupling is neither an input nor a label, and test chains have couplings and seeds that training chains do not have.

Chains are kept in the user's cache folder (``METALFORGE_CACHE``) under the hash of their specification.
"""

import hashlib
import os
import zipfile
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core.arrays import Doubles
from metalforge.core.files import cache_folder
from metalforge.lattice.chain import Chain, ChainSpec, HeatbathSpec
from metalforge.lattice.run import ChainRun
from metalforge.lattice.warmup import WarmUp

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

    inputs: Doubles
    labels: NDArray[np.int64]
    chain: NDArray[np.int64]


def phase_windows(spec: PhaseCorpusSpec | None = None) -> tuple[PhaseWindows, PhaseWindows]:
    """Return training and test windows, from the cache if they were made before."""
    spec = spec or PhaseCorpusSpec()
    found = cached_chains(spec)
    # (chains, windows, steps, columns); windows do not overlap.
    count = spec.updates // spec.window
    windows = found[:, : count * spec.window].reshape(len(found), count, spec.window, -1)
    train = windows[: len(spec.train)]
    seen = train[..., :3]
    mean, deviation = seen.mean(axis=(0, 1, 2)), seen.std(axis=(0, 1, 2))
    threshold = _two_means(train[..., 3].mean(axis=2).ravel())

    def labelled(part: Doubles) -> PhaseWindows:
        inputs = (part[..., :3] - mean) / deviation
        labels = part[..., 3].mean(axis=2).ravel() > threshold
        chain = np.repeat(np.arange(len(part)), count)
        return PhaseWindows(inputs.reshape(-1, spec.window, 3), labels.astype(np.int64), chain)

    return labelled(train), labelled(windows[len(spec.train) :])


def cached_chains(spec: PhaseCorpusSpec) -> Doubles:
    """Return plaquettes and loops (chains, updates, 4); a file that is missing or damaged is made again."""
    key = hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).hexdigest()[:16]
    path = cache_folder() / f"phase-windows-{key}.npz"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return np.asarray(stored["rows"], np.float64)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        made = _run_chains(spec)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_stem(f"{path.stem}.{os.getpid()}")
    np.savez_compressed(partial, rows=made)
    partial.replace(path)
    return made


def _run_chains(spec: PhaseCorpusSpec) -> Doubles:
    found = []
    for first, betas in ((0, spec.train), (100, spec.test)):
        for i, beta in enumerate(betas):
            asked = ChainSpec(
                dims=spec.dims,
                beta=beta,
                seed=spec.seed,
                stream=first + i,
                start="hot" if i % 2 else "cold",
                heatbath=spec.sweeps,
            )
            run = ChainRun(Chain(asked, threads=1), WarmUp(total=spec.warmup), OBSERVED)
            for _ in range(spec.warmup + spec.updates):
                run.step()
            spatial, temporal, loop = (np.array(column[spec.warmup :]) for column in run.log.columns.values())
            found.append(np.column_stack([spatial, temporal, temporal - spatial, loop]))
    return np.stack(found)


def _two_means(values: Doubles) -> float:
    """Return the threshold that parts values into two groups of least variance."""
    ordered = np.sort(values)
    cuts = range(1, len(ordered))
    spread = [ordered[:k].var() * k + ordered[k:].var() * (len(ordered) - k) for k in cuts]
    best = int(np.argmin(spread)) + 1
    return float((ordered[best - 1] + ordered[best]) / 2)
