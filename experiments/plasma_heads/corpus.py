"""Runs of the plasma to learn from: windows, and what whole runs found, in HDF5 files that are checked on reading.

::

    /                attributes format, format_version, package_version, sha256
    /recipe          text: the grid's name and every run's entry, as JSON
    /runs/N/window   float32 (COLUMNS, frames): the first part of run N
    /runs/N/shuffled the same made of the same frames in a random order, where there is one: a control
    /runs/N/segments float64 (segments, 2 + bins): temperature, D_N of displacements, power of the stress

The checksum covers recipe and arrays. Nothing in a file was timed, and nothing in it can run when it is read. Sums
over particles are kept as float32, all else rounded to 12 bits, far below its noise. A corpus may lie in several
files of a folder: it is all of them together.
"""

import hashlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import h5py  # type: ignore[import-untyped]
import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge import __version__
from metalforge.conductor.plasma.frames import COLUMNS, ENERGIES
from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError
from metalforge.core.files import PathLike, opened, replacing
from metalforge.native.engine import Precision
from metalforge.plasma.references import melting_gamma
from metalforge.plasma.spec import PlasmaSpec
from metalforge.plasma.transport import Transport, TransportSegment, transport

FORMAT, FORMAT_VERSION = "metalforge-plasma-corpus", "1"
Part: TypeAlias = Literal["train", "test"]
Floats: TypeAlias = NDArray[np.float32]
BITS = 12
"""Of the mantissa of columns that are not sums over all particles."""


class PlasmaEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one run is: a state point, a box, a stream, and its times in 1 / omega_p."""

    part: Part
    gamma: float
    kappa: float
    particles: int
    seed: int
    stream: int
    warmup: float
    window: float
    """What heads see, the first part of `time`."""
    time: float
    precision: Precision = "f64"
    """Of pair forces; all else is in doubles."""
    shuffled: bool = False
    """Whether the window is kept with its frames in a random order, too."""

    @property
    def spec(self) -> PlasmaSpec:
        """The run's own."""
        return PlasmaSpec(
            gamma=self.gamma,
            kappa=self.kappa,
            particles=self.particles,
            seed=self.seed,
            stream=self.stream,
            precision=self.precision,
        )

    @property
    def place(self) -> tuple[float, float]:
        """The state point, the cluster that it is drawn with: kappa and Gamma."""
        return self.kappa, self.gamma

    @property
    def ratio(self) -> float:
        """Gamma / Gamma_m."""
        return self.gamma / melting_gamma(self.kappa)


@dataclass(frozen=True, kw_only=True, eq=False)
class PlasmaRecord:
    """One run: its window, and what each segment of the whole run left."""

    entry: PlasmaEntry
    window: Floats
    segments: Doubles
    shuffled: Floats | None = None
    peers: list["PlasmaRecord"] = field(default_factory=list, repr=False)
    """All runs of its state point and size, itself too: a corpus fills it in."""

    def column(self, name: str) -> Doubles:
        """Return one column of the window."""
        return np.asarray(self.window[COLUMNS.index(name)], np.float64)

    @property
    def kept(self) -> list[TransportSegment]:
        """The segments, from the first on. Velocities were not followed beyond the window: that estimate is missing."""
        spec = self.entry.spec
        time = spec.segment_blocks * spec.block_time
        return [
            TransportSegment(
                time=time,
                temperature=float(row[0]),
                diffusion_msd=float(row[1]),
                diffusion_vacf=float("nan"),
                stress_power=tuple(row[2:].tolist()),
            )
            for row in self.segments
        ]

    @cached_property
    def found(self) -> Transport:
        """What the whole run says, with errors."""
        return transport(self.entry.spec, [self.kept])

    @cached_property
    def found_together(self) -> Transport:
        """What all runs of the state point say, with errors."""
        runs = self.peers or [self]
        return runs[0].found_together if runs[0] is not self else transport(self.entry.spec, [r.kept for r in runs])


@dataclass(frozen=True, kw_only=True, eq=False)
class PlasmaCorpus:
    """Runs, with the name of their grid."""

    grid: str
    runs: tuple[PlasmaRecord, ...]
    package_version: str = __version__

    def __post_init__(self) -> None:
        together: dict[object, list[PlasmaRecord]] = {}
        for run in self.runs:
            together.setdefault((run.entry.place, run.entry.particles, run.entry.part), []).append(run)
        for run in self.runs:
            run.peers[:] = together[run.entry.place, run.entry.particles, run.entry.part]

    @cached_property
    def sha256(self) -> str:
        """The checksum of the recipe and all arrays, as a file has it."""
        return _digest(_recipe(self), self.runs)

    def part(self, part: Part) -> tuple[PlasmaRecord, ...]:
        """Return the runs of one part: they share neither state points nor random numbers with the other."""
        return tuple(run for run in self.runs if run.entry.part == part)

    def tested_on(self, other: "PlasmaCorpus") -> "PlasmaCorpus":
        """Return the training runs of this corpus with the test runs of another in place of its own."""
        if not other.part("test"):
            raise SpecError("runs to test on are test runs. Got a corpus without any\nhint: --part test or all")
        taught = PlasmaCorpus(grid=self.grid, runs=self.part("train"))
        return joined_runs((taught, PlasmaCorpus(grid=other.grid, runs=other.part("test"))))


class _PlasmaRecipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    grid: str
    runs: tuple[PlasmaEntry, ...]


def rounded(columns: Doubles) -> Floats:
    """Return columns as files keep them."""
    kept = np.asarray(columns, np.float32).copy()
    rest = kept[len(ENERGIES) :]
    mantissa, exponent = np.frexp(rest)
    kept[len(ENERGIES) :] = np.ldexp(np.round(mantissa * (1 << BITS)) / (1 << BITS), exponent)
    return kept


def save_plasma(corpus: PlasmaCorpus, path: PathLike) -> None:
    """Write a corpus over `path`, whole or not at all."""
    recipe = _recipe(corpus)
    image = io.BytesIO()
    packed = {"compression": "gzip", "shuffle": True, "track_times": False}
    with h5py.File(image, "w", libver=("v110", "v110")) as file:
        file["recipe"] = np.frombuffer(recipe, np.uint8)
        for i, run in enumerate(corpus.runs):
            for name, array in _arrays(run):
                file.create_dataset(f"runs/{i}/{name}", data=array, **packed)
        file.attrs["format"], file.attrs["format_version"] = FORMAT, FORMAT_VERSION
        file.attrs["package_version"] = corpus.package_version
        file.attrs["sha256"] = _digest(recipe, corpus.runs)
    with replacing(path) as stream:
        stream.write(image.getbuffer())


def load_plasma(path: PathLike) -> PlasmaCorpus:
    """Return the corpus in a file as it was written, or that of all files (`*.h5`) of a folder together."""
    if Path(path).is_dir():
        found = sorted(Path(path).glob("*.h5"))
        if not found:
            raise SpecError(f"{path}: a folder with a corpus holds .h5 files. Got none")
        return joined_runs([load_plasma(one) for one in found])
    with opened(path):
        try:
            with h5py.File(path, "r", locking=False) as file:
                return _read_plasma(file)
        except SpecError:
            raise
        except Exception as error:  # the library answers damage with many types, none of them its own
            raise SpecError(f"not a corpus of the plasma, or damaged ({error})") from error


def joined_runs(corpora: Sequence[PlasmaCorpus]) -> PlasmaCorpus:
    """Return the runs of several corpora as one; a run that is in two of them is refused."""
    runs = tuple(run for part in corpora for run in part.runs)
    names = [(run.entry.place, run.entry.particles, run.entry.seed, run.entry.stream) for run in runs]
    if len(set(names)) < len(names):
        raise SpecError("corpora that are joined must not share runs\nhint: is a file there twice?")
    return PlasmaCorpus(grid="+".join(sorted({part.grid for part in corpora})), runs=runs)


def _read_plasma(file: Any) -> PlasmaCorpus:
    found = str(file.attrs.get("format", "")), str(file.attrs.get("format_version", ""))
    if found != (FORMAT, FORMAT_VERSION):
        raise SpecError(f"wanted {FORMAT} version {FORMAT_VERSION}, got `{found[0][:40]}` version `{found[1][:10]}`")
    text = np.asarray(file["recipe"], np.uint8).tobytes()
    recipe = msgspec.json.decode(text, type=_PlasmaRecipe)
    runs = []
    for i, entry in enumerate(recipe.runs):
        group = file[f"runs/{i}"]
        runs.append(
            PlasmaRecord(
                entry=entry,
                window=np.asarray(group["window"], np.float32),
                segments=np.asarray(group["segments"], np.float64),
                shuffled=np.asarray(group["shuffled"], np.float32) if "shuffled" in group else None,
            )
        )
        if runs[-1].window.shape[:1] != (len(COLUMNS),) or runs[-1].segments.ndim != 2:
            raise SpecError(f"run {i} has a window of shape {runs[-1].window.shape}")
    if str(file.attrs.get("sha256", "")) != _digest(text, runs):
        raise SpecError("sha256: these are not the runs that were written")
    return PlasmaCorpus(grid=recipe.grid, runs=tuple(runs), package_version=str(file.attrs["package_version"]))


def _arrays(run: PlasmaRecord) -> list[tuple[str, NDArray[Any]]]:
    named = [("window", run.window.astype("<f4")), ("segments", run.segments.astype("<f8"))]
    return named if run.shuffled is None else [*named, ("shuffled", run.shuffled.astype("<f4"))]


def _recipe(corpus: PlasmaCorpus) -> bytes:
    return msgspec.json.encode(_PlasmaRecipe(grid=corpus.grid, runs=tuple(run.entry for run in corpus.runs)))


def _digest(recipe: bytes, runs: Iterable[PlasmaRecord]) -> str:
    digest = hashlib.sha256(recipe)
    for run in runs:
        for name, array in _arrays(run):
            digest.update(f"{name}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
