"""The records of a corpus: chains with what was seen and what labels are made of, in one HDF5 file, checked on reading.

::

    /                attributes format, format_version, package_version, sha256
    /recipe          text: the specification and every chain's entry, as JSON
    /chains/N        float64 (trajectories, columns): the series of chain N, in the order of `SERIES`
    /references/N    float64 (2, updates, 3): hot and cold run of reference N; Wilson loop, Polyakov loop, plaquette

The checksum covers the recipe and every series. Nothing in the file can run when it is read.
"""

import hashlib
import io
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import h5py  # type: ignore[import-untyped]
import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge import __version__
from metalforge.core.errors import SpecError
from metalforge.core.files import PathLike, opened, replacing

from .features import ChainContext, ObservedUpdate

FORMAT, FORMAT_VERSION = "metalforge-conductor-corpus", "2"
Doubles: TypeAlias = NDArray[np.float64]
Part: TypeAlias = Literal["train", "test"]
Fault: TypeAlias = Literal["bad_links", "wrong_step", "cg_stall"]
Dims: TypeAlias = tuple[int, int, int, int]
SERIES = (
    "plaquette_spatial",
    "plaquette_temporal",
    "delta_h",
    "delta_h_quarter",
    "accepted",
    "cg_iterations",
    "residual_rate",
    "wilson_loop",
    "polyakov",
)
"""Columns of a chain, NaN where the algorithm has no such number. Plaquettes and loops of row t are those of the
configuration that trajectory t starts from, so that row t tells nothing of how its Metropolis test ends."""
LABEL_SERIES = ("wilson_loop", "polyakov")
"""Columns that labels are made of; no feature is."""


class ChainEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one chain is; `fault` goes on for `fault_length` trajectories from `fault_from` on."""

    part: Part
    beta: float
    dims: Dims
    start: Literal["hot", "cold"]
    tau: float
    n_steps: int
    stream: int
    trajectories: int
    untested: int
    mass: float = 0.0
    flavors: int = 0
    fault: Fault | None = None
    fault_from: int = 0
    fault_length: int = 0
    seconds: float = 0.0
    """Processor time of its trajectories, without measurements."""

    @property
    def place(self) -> ChainContext:
        """The equilibrium it belongs to, which is all that the features see of it."""
        return ChainContext(beta=self.beta, dims=self.dims, mass=self.mass, flavors=self.flavors)


class Reference(NamedTuple):
    """A long run from hot and one from cold: (2, updates, 3), Wilson loop, Z3-projected Polyakov loop, plaquette."""

    entry: ChainContext
    series: Doubles


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChainRecord:
    """One chain: its entry and its series (trajectories, columns)."""

    entry: ChainEntry
    series: Doubles

    def column(self, name: str) -> Doubles:
        """Return one series by name."""
        return np.asarray(self.series[:, SERIES.index(name)])

    @property
    def plaquette(self) -> Doubles:
        """The mean of both plaquettes."""
        return np.asarray((self.column("plaquette_spatial") + self.column("plaquette_temporal")) / 2)

    @property
    def faulty(self) -> NDArray[np.bool_]:
        """Where the injected fault was at work."""
        index = np.arange(len(self.series))
        entry = self.entry
        within = (index >= entry.fault_from) & (index < entry.fault_from + entry.fault_length)
        return within & (entry.fault is not None)

    def trajectories(self) -> list[ObservedUpdate]:
        """Return what an observer saw, in order; the step size is the one that was asked for, fault or not."""
        entry = self.entry
        seen = []
        for t, row in enumerate(self.series):
            known = {name: float(x) for name, x in zip(SERIES, row, strict=True) if not np.isnan(x)}
            accepted = known.pop("accepted", None)
            seen.append(
                ObservedUpdate(
                    phase="warmup" if t < entry.untested else "measure",
                    accepted=None if accepted is None else bool(accepted),
                    step_size=entry.tau / entry.n_steps,
                    n_steps=entry.n_steps,
                    **{name: value for name, value in known.items() if name not in LABEL_SERIES},
                )
            )
        return seen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Corpus:
    """Chains and references, with the specification they were made from, as JSON."""

    spec_json: str
    chains: tuple[ChainRecord, ...]
    references: tuple[Reference, ...]
    package_version: str = __version__

    @property
    def sha256(self) -> str:
        """The checksum of the recipe and every series, as the file has it."""
        return _digest(_recipe(self), _arrays(self))

    def part(self, part: Part) -> tuple[ChainRecord, ...]:
        """Return the chains of one part: they share neither couplings nor random numbers with the other."""
        return tuple(chain for chain in self.chains if chain.entry.part == part)

    def reference(self, place: ChainContext) -> Reference:
        """Return the long run of an equilibrium."""
        for reference in self.references:
            if reference.entry == place:
                return reference
        raise SpecError(f"the corpus has no reference run for {place}")


class _Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    spec: msgspec.Raw
    chains: tuple[ChainEntry, ...]
    references: tuple[ChainContext, ...]


def save_corpus(corpus: Corpus, path: PathLike) -> None:
    """Write a corpus over `path`, whole or not at all."""
    recipe, arrays = _recipe(corpus), _arrays(corpus)
    image = io.BytesIO()
    with h5py.File(image, "w", libver=("v110", "v110")) as file:
        file["recipe"] = np.frombuffer(recipe, np.uint8)
        for name, values in arrays.items():
            file.create_dataset(name, data=values.astype("<f8"), compression="gzip", track_times=False)
        file.attrs["format"], file.attrs["format_version"] = FORMAT, FORMAT_VERSION
        file.attrs["package_version"] = corpus.package_version
        file.attrs["sha256"] = _digest(recipe, arrays)
    with replacing(path) as stream:
        stream.write(image.getbuffer())


def load_corpus(path: PathLike) -> Corpus:
    """Return the corpus in a file, as it was written."""
    with opened(path):
        try:
            with h5py.File(path, "r", locking=False) as file:
                return _read(file)
        except SpecError:
            raise
        except Exception as error:  # the library answers damage with many types, none of them its own
            raise SpecError(f"not a corpus, or damaged ({error})") from error


def _read(file: Any) -> Corpus:
    found = str(file.attrs.get("format", "")), str(file.attrs.get("format_version", ""))
    if found != (FORMAT, FORMAT_VERSION):
        raise SpecError(f"wanted {FORMAT} version {FORMAT_VERSION}, got `{found[0][:40]}` version `{found[1][:10]}`")
    text = np.asarray(file["recipe"], np.uint8).tobytes()
    recipe = msgspec.json.decode(text, type=_Recipe)
    corpus = Corpus(
        spec_json=bytes(recipe.spec).decode(),
        chains=tuple(
            ChainRecord(entry=entry, series=np.asarray(file[f"chains/{i}"], np.float64))
            for i, entry in enumerate(recipe.chains)
        ),
        references=tuple(
            Reference(entry, np.asarray(file[f"references/{i}"], np.float64))
            for i, entry in enumerate(recipe.references)
        ),
        package_version=str(file.attrs["package_version"]),
    )
    for i, chain in enumerate(corpus.chains):
        if chain.series.shape != (chain.entry.trajectories, len(SERIES)):
            raise SpecError(f"chain {i} has series of shape {chain.series.shape}")
    if str(file.attrs.get("sha256", "")) != _digest(text, _arrays(corpus)):
        raise SpecError("sha256: these are not the series that were written")
    return corpus


def _recipe(corpus: Corpus) -> bytes:
    return msgspec.json.encode(
        _Recipe(
            spec=msgspec.Raw(corpus.spec_json.encode()),
            chains=tuple(c.entry for c in corpus.chains),
            references=tuple(r.entry for r in corpus.references),
        )
    )


def _arrays(corpus: Corpus) -> dict[str, Doubles]:
    chains = {f"chains/{i}": chain.series for i, chain in enumerate(corpus.chains)}
    return chains | {f"references/{i}": reference.series for i, reference in enumerate(corpus.references)}


def _digest(recipe: bytes, arrays: dict[str, Doubles]) -> str:
    digest = hashlib.sha256(recipe)
    for name, values in arrays.items():
        digest.update(f"{name} {values.shape}".encode())
        digest.update(np.ascontiguousarray(values, "<f8").tobytes())
    return digest.hexdigest()
