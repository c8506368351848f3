"""Corpora that heads are trained on: recorded chains or runs in HDF5 files that are checked when they are read.

::

    /            attributes format, format_version, package_version, sha256
    /recipe      text: the grid's name and the entry of every record, as JSON
    /chains/N    or /runs/N/...: the arrays of record N

The checksum covers the recipe and every array. Files hold no times of day and nothing that could be executed. A corpus
may be split over several files of a folder.
"""

import hashlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeAlias, TypeVar

import h5py  # type: ignore[import-untyped]
import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge import __version__
from metalforge.core.errors import SpecError
from metalforge.core.files import PathLike, opened, replacing

Part: TypeAlias = Literal["train", "test"]
PARTS: tuple[Part, ...] = ("train", "test")
Floats: TypeAlias = NDArray[np.float32]


class Record(Protocol):
    """A recorded chain or run."""

    @property
    def entry(self) -> Any:
        """Its description: `part`, `seed`, a `name` that is unique in a corpus, `file`, `work` and `label`."""

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return its arrays as files have them; one that is alone has no name."""

    @classmethod
    def read(cls, entry: Any, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the record from what a file has of it."""


R = TypeVar("R", bound=Record)


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedCorpus(Generic[R]):
    """Records with the name of their grid."""

    grid: str
    records: tuple[R, ...]
    spec: msgspec.Raw | None = None
    """The specification that they were made from, as JSON, where a theory keeps one."""

    FORMAT: ClassVar[tuple[str, str]]
    """Name and version of the format."""
    RECORDS: ClassVar[str]
    """The records' name in a file."""
    RECORD: ClassVar[type[Any]]
    ENTRY: ClassVar[type[msgspec.Struct]]

    def recipe(self) -> bytes:
        """Return what stands in a file beside arrays."""
        spec = {} if self.spec is None else {"spec": self.spec}
        return msgspec.json.encode({"grid": self.grid, **spec, self.RECORDS: [one.entry for one in self.records]})

    @cached_property
    def sha256(self) -> str:
        """The checksum of the recipe and every array, as a file has it."""
        return _digest(self.recipe(), self.records)

    def part(self, part: Part) -> tuple[R, ...]:
        """Return the records of one part: they share neither couplings nor random numbers with the other."""
        return tuple(record for record in self.records if record.entry.part == part)

    def tested_on(self, other: Self) -> Self:
        """Return the training records of this corpus with the test records of another in place of its own."""
        if not other.part("test"):
            raise SpecError(f"no test {self.RECORDS} in the corpus that was given for them\nhint: --part test or all")
        return self.joined((replace(self, records=self.part("train")), replace(other, records=other.part("test"))))

    @classmethod
    def joined(cls, corpora: Iterable[Self]) -> Self:
        """Return the records of several corpora as one; a record that is in two of them is refused."""
        parts = list(corpora)
        records = tuple(record for part in parts for record in part.records)
        if len({record.entry.name for record in records}) < len(records):
            raise SpecError(f"corpora that are joined must not share {cls.RECORDS}\nhint: is a file there twice?")
        specs = sorted({bytes(part.spec) for part in parts if part.spec is not None})
        spec = msgspec.Raw(b"[" + b",".join(specs) + b"]") if specs else None
        return cls(grid="+".join(sorted({part.grid for part in parts})), records=records, spec=spec)

    def save(self, path: PathLike) -> None:
        """Write the corpus over `path`, whole or not at all."""
        image = io.BytesIO()
        packed = {"compression": "gzip", "shuffle": True, "track_times": False}
        with h5py.File(image, "w", libver=("v110", "v110")) as file:
            file["recipe"] = np.frombuffer(self.recipe(), np.uint8)
            for i, record in enumerate(self.records):
                for name, array in record.arrays().items():
                    file.create_dataset(f"{self.RECORDS}/{i}/{name}".rstrip("/"), data=array, **packed)
            file.attrs["format"], file.attrs["format_version"] = self.FORMAT
            file.attrs["package_version"] = __version__
            file.attrs["sha256"] = self.sha256
        with replacing(path) as stream:
            stream.write(image.getbuffer())

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Return the corpus in a file as it was written, or that of all files (`*.h5`) of a folder together."""
        if Path(path).is_dir():
            found = sorted(Path(path).glob("*.h5"))
            if not found:
                raise SpecError(f"{path}: a folder with a corpus holds .h5 files. Got none")
            return cls.joined(map(cls.load, found))
        with opened(path):
            try:
                with h5py.File(path, "r", locking=False) as file:
                    return cls._read(file)
            except SpecError:
                raise
            except Exception as error:  # the library answers damage with many types, none of them its own
                raise SpecError(f"not a {cls.FORMAT[0]}, or damaged ({error})") from error

    @classmethod
    def _read(cls, file: Any) -> Self:
        found = str(file.attrs.get("format", "")), str(file.attrs.get("format_version", ""))
        if found != cls.FORMAT:
            wanted = " version ".join(cls.FORMAT)
            raise SpecError(f"wanted {wanted}, got `{found[0][:40]}` version `{found[1][:10]}`")
        text = np.asarray(file["recipe"], np.uint8).tobytes()
        recipe = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        records = []
        for i, entry in enumerate(msgspec.json.decode(recipe[cls.RECORDS])):
            stored = file[f"{cls.RECORDS}/{i}"]
            arrays = {"": stored} if isinstance(stored, h5py.Dataset) else stored
            read = {name: np.asarray(array) for name, array in arrays.items()}
            records.append(cls.RECORD.read(msgspec.convert(entry, cls.ENTRY), read))
        if str(file.attrs.get("sha256", "")) != _digest(text, records):
            raise SpecError(f"sha256: these are not the {cls.RECORDS} that were written")
        return cls(grid=msgspec.json.decode(recipe["grid"]), records=tuple(records), spec=recipe.get("spec"))


def _digest(recipe: bytes, records: Iterable[Record]) -> str:
    digest = hashlib.sha256(recipe)
    for record in records:
        for name, array in record.arrays().items():
            digest.update(f"{name}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
