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
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
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
        """Its description: a struct with `part`, `seed` and a `name` that is unique in a corpus."""

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return its arrays as files have them; one that is alone has no name."""


R = TypeVar("R", bound=Record)


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedCorpus(ABC, Generic[R]):
    """Records with the name of their grid. A kind of corpus says where it keeps them and how files have them."""

    grid: str
    package_version: str = __version__

    FORMAT: ClassVar[tuple[str, str]]
    RECORDS: ClassVar[str]
    """The name of the field with the records."""
    RECIPE: ClassVar[type[msgspec.Struct]]
    """Fields of this corpus that are no arrays, with entries in place of records."""

    @property
    def records(self) -> tuple[R, ...]:
        """The records, training ones and those to test on."""
        return tuple(getattr(self, self.RECORDS))

    @staticmethod
    @abstractmethod
    def read_record(entry: Any, arrays: Mapping[str, NDArray[Any]]) -> R:
        """Return a record from what a file has of it."""

    def recipe(self) -> msgspec.Struct:
        """Return what stands in a file beside arrays."""
        fields = {name: getattr(self, name) for name in self.RECIPE.__struct_fields__}
        return self.RECIPE(**fields | {self.RECORDS: tuple(record.entry for record in self.records)})

    @cached_property
    def sha256(self) -> str:
        """The checksum of the recipe and every array, as a file has it."""
        return _digest(msgspec.json.encode(self.recipe()), self.records)

    def part(self, part: Part) -> tuple[R, ...]:
        """Return the records of one part: they share neither couplings nor random numbers with the other."""
        return tuple(record for record in self.records if record.entry.part == part)

    def of_part(self, part: Part) -> Self:
        """Return the corpus of one part."""
        kept: dict[str, Any] = {self.RECORDS: self.part(part)}
        return replace(self, **kept)

    def tested_on(self, other: Self) -> Self:
        """Return the training records of this corpus with the test records of another in place of its own."""
        if not other.part("test"):
            raise SpecError(f"no test {self.RECORDS} in the corpus that was given for them\nhint: --part test or all")
        return self.joined((self.of_part("train"), other.of_part("test")))

    @classmethod
    def joined(cls, corpora: Iterable[Self]) -> Self:
        """Return the records of several corpora as one; a record that is in two of them is refused."""
        parts = list(corpora)
        records = tuple(record for part in parts for record in part.records)
        if len({record.entry.name for record in records}) < len(records):
            raise SpecError(f"corpora that are joined must not share {cls.RECORDS}\nhint: is a file there twice?")
        fields: dict[str, Any] = {cls.RECORDS: records, **cls.joined_fields(parts)}
        return cls(grid="+".join(sorted({part.grid for part in parts})), **fields)

    @classmethod
    def joined_fields(cls, corpora: Sequence[Self]) -> dict[str, Any]:
        """Return the other fields of joined corpora."""
        return {}

    def save(self, path: PathLike) -> None:
        """Write the corpus over `path`, whole or not at all."""
        recipe, image = msgspec.json.encode(self.recipe()), io.BytesIO()
        packed = {"compression": "gzip", "shuffle": True, "track_times": False}
        with h5py.File(image, "w", libver=("v110", "v110")) as file:
            file["recipe"] = np.frombuffer(recipe, np.uint8)
            for i, record in enumerate(self.records):
                for name, array in record.arrays().items():
                    file.create_dataset(f"{self.RECORDS}/{i}/{name}".rstrip("/"), data=array, **packed)
            file.attrs["format"], file.attrs["format_version"] = self.FORMAT
            file.attrs["package_version"] = self.package_version
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
        fields: dict[str, Any] = msgspec.structs.asdict(msgspec.json.decode(text, type=cls.RECIPE))
        records = []
        for i, entry in enumerate(fields.pop(cls.RECORDS)):
            stored = file[f"{cls.RECORDS}/{i}"]
            arrays = {"": stored} if isinstance(stored, h5py.Dataset) else stored
            records.append(cls.read_record(entry, {name: np.asarray(array) for name, array in arrays.items()}))
        if str(file.attrs.get("sha256", "")) != _digest(text, records):
            raise SpecError(f"sha256: these are not the {cls.RECORDS} that were written")
        fields[cls.RECORDS] = tuple(records)
        return cls(package_version=str(file.attrs["package_version"]), **fields)


def _digest(recipe: bytes, records: Iterable[Record]) -> str:
    digest = hashlib.sha256(recipe)
    for record in records:
        for name, array in record.arrays().items():
            digest.update(f"{name}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
