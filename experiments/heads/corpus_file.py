"""The records of a corpus: chains as a journal has them, in HDF5 files that are checked on reading.

::

    /                attributes format, format_version, package_version, sha256
    /recipe          text: the grid's name, the specification and every chain's entry, as JSON
    /chains/N        float32 (columns, updates): what chain N gave, in the order of `ChainEntry.columns`

The checksum covers the recipe and every series. Nothing in a file was timed, and nothing in it can run when it
is read. A corpus may lie in several files of a folder: it is all of them together.
"""

import hashlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import h5py  # type: ignore[import-untyped]
import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge import __version__
from metalforge.conductor.features import SEEN
from metalforge.core.errors import SpecError
from metalforge.core.files import PathLike, opened, replacing

FORMAT, FORMAT_VERSION = "metalforge-conductor-corpus", "3"
Floats: TypeAlias = NDArray[np.float32]
Part: TypeAlias = Literal["train", "test"]
Start: TypeAlias = Literal["hot", "cold"]
Dims: TypeAlias = tuple[int, int, int, int]
TRAJECTORIES = (*SEEN, "delta_h", "accepted", "delta_h_quarter", "n_steps")
"""What a trajectory leaves, in the order of files."""


class ChainEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one chain is. Its first `quenched` updates are sweeps without quarks, those up to `warmup` are tuned.

    Of trajectories `length` is the time of one. A `fault` is at work for `fault_length` updates from `fault_from` on.
    """

    part: Part
    beta: float
    dims: Dims
    start: Start
    seed: int
    stream: int
    updates: int
    algorithm: Literal["heatbath", "hmc"] = "heatbath"
    length: float = 1.0
    quenched: int = 0
    warmup: int = 0
    mass: float = 0.0
    flavors: int = 0
    fault: str = ""
    fault_from: int = 0
    fault_length: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        if self.algorithm == "heatbath":
            return SEEN
        return (*TRAJECTORIES, "cg_iterations") if self.flavors else TRAJECTORIES

    @property
    def lattice(self) -> tuple[Dims, float]:
        """Extents and mass: what chains of one scan share."""
        return self.dims, self.mass

    @property
    def place(self) -> tuple[Dims, float, float]:
        """Lattice and coupling: the equilibrium it goes to, and the cluster it is drawn with."""
        return *self.lattice, self.beta


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChainRecord:
    """One chain: its entry and its series (columns, updates), NaN where an update has no such number."""

    entry: ChainEntry
    series: Floats

    def column(self, name: str) -> NDArray[np.float64]:
        """Return one series by name."""
        return np.asarray(self.series[self.entry.columns.index(name)], np.float64)

    @property
    def columns(self) -> Mapping[str, NDArray[np.float64]]:
        """All series by name."""
        return {name: self.column(name) for name in self.entry.columns}

    @property
    def loop(self) -> NDArray[np.float64]:
        """|L|, the modulus of the Polyakov loop."""
        return np.asarray(np.hypot(self.column("polyakov_re"), self.column("polyakov_im")))


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Chains, with the name of their grid and the specification they were made from, as JSON."""

    grid: str
    spec_json: str
    chains: tuple[ChainRecord, ...]
    package_version: str = __version__

    @cached_property
    def sha256(self) -> str:
        """The checksum of the recipe and every series, as a file has it."""
        return _digest(_recipe(self), self.chains)

    def part(self, part: Part) -> tuple[ChainRecord, ...]:
        """Return the chains of one part: they share neither couplings nor random numbers with the other."""
        return tuple(chain for chain in self.chains if chain.entry.part == part)

    def tested_on(self, other: "Corpus") -> "Corpus":
        """Return the training chains of this corpus with the test chains of another in place of its own."""
        if not other.part("test"):
            raise SpecError("chains to test on are test chains. Got a corpus without any\nhint: --part test or all")
        taught, asked = replace(self, chains=self.part("train")), replace(other, chains=other.part("test"))
        return joined((taught, asked))

    def by_extent(self) -> dict[int, "Corpus"]:
        """Return the chains of every N_t as a corpus of their own."""
        extents = sorted({chain.entry.dims[3] for chain in self.chains})
        return {n_t: replace(self, chains=tuple(c for c in self.chains if c.entry.dims[3] == n_t)) for n_t in extents}


class _Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    grid: str
    spec: msgspec.Raw
    chains: tuple[ChainEntry, ...]


def save_corpus(corpus: Corpus, path: PathLike) -> None:
    """Write a corpus over `path`, whole or not at all."""
    recipe = _recipe(corpus)
    image = io.BytesIO()
    with h5py.File(image, "w", libver=("v110", "v110")) as file:
        file["recipe"] = np.frombuffer(recipe, np.uint8)
        for i, chain in enumerate(corpus.chains):
            data = chain.series.astype("<f4")
            file.create_dataset(f"chains/{i}", data=data, compression="gzip", shuffle=True, track_times=False)
        file.attrs["format"], file.attrs["format_version"] = FORMAT, FORMAT_VERSION
        file.attrs["package_version"] = corpus.package_version
        file.attrs["sha256"] = _digest(recipe, corpus.chains)
    with replacing(path) as stream:
        stream.write(image.getbuffer())


def load_corpus(path: PathLike) -> Corpus:
    """Return the corpus in a file as it was written, or that of all files (`*.h5`) of a folder together."""
    if Path(path).is_dir():
        found = sorted(Path(path).glob("*.h5"))
        if not found:
            raise SpecError(f"{path}: a folder with a corpus holds .h5 files. Got none")
        return joined(map(load_corpus, found))
    with opened(path):
        try:
            with h5py.File(path, "r", locking=False) as file:
                return _read(file)
        except SpecError:
            raise
        except Exception as error:  # the library answers damage with many types, none of them its own
            raise SpecError(f"not a corpus, or damaged ({error})") from error


def joined(corpora: Iterable[Corpus]) -> Corpus:
    """Return the chains of several corpora as one; a chain that is in two of them is refused."""
    parts = list(corpora)
    chains = tuple(chain for part in parts for chain in part.chains)
    names = [(c.entry.place, c.entry.algorithm, c.entry.seed, c.entry.stream) for c in chains]
    if len(set(names)) < len(names):
        raise SpecError("corpora that are joined must not share chains\nhint: is a file there twice?")
    specs = sorted({part.spec_json for part in parts})
    return Corpus(
        grid="+".join(sorted({part.grid for part in parts})),
        spec_json=f"[{','.join(specs)}]",
        chains=chains,
    )


def _read(file: Any) -> Corpus:
    found = str(file.attrs.get("format", "")), str(file.attrs.get("format_version", ""))
    if found != (FORMAT, FORMAT_VERSION):
        raise SpecError(f"wanted {FORMAT} version {FORMAT_VERSION}, got `{found[0][:40]}` version `{found[1][:10]}`")
    text = np.asarray(file["recipe"], np.uint8).tobytes()
    recipe = msgspec.json.decode(text, type=_Recipe)
    chains = tuple(
        ChainRecord(entry=entry, series=np.asarray(file[f"chains/{i}"], np.float32))
        for i, entry in enumerate(recipe.chains)
    )
    for i, chain in enumerate(chains):
        if chain.series.shape != (len(chain.entry.columns), chain.entry.updates):
            raise SpecError(f"chain {i} has series of shape {chain.series.shape}")
    if str(file.attrs.get("sha256", "")) != _digest(text, chains):
        raise SpecError("sha256: these are not the series that were written")
    return Corpus(
        grid=recipe.grid,
        spec_json=bytes(recipe.spec).decode(),
        chains=chains,
        package_version=str(file.attrs["package_version"]),
    )


def _recipe(corpus: Corpus) -> bytes:
    entries = tuple(chain.entry for chain in corpus.chains)
    return msgspec.json.encode(_Recipe(grid=corpus.grid, spec=msgspec.Raw(corpus.spec_json.encode()), chains=entries))


def _digest(recipe: bytes, chains: Iterable[ChainRecord]) -> str:
    digest = hashlib.sha256(recipe)
    for chain in chains:
        digest.update(str(chain.series.shape).encode())
        digest.update(np.ascontiguousarray(chain.series, "<f4").tobytes())
    return digest.hexdigest()
