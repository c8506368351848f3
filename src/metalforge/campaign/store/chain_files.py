"""Where the checkpoints of a campaign's chains are kept: in its directory, in a shared folder, or in an object store.

::

    ""                    DIR/chains
    file:///shared/path   a folder that all machines of the campaign see
    s3://bucket/prefix    objects, by `fsspec`; gs:// likewise, and memory:// for tests, in one process

Anywhere but in its directory a campaign has a folder of its own, whose address its journal keeps. Credentials come from
the environment, as the packages behind `fsspec` take them, and are no part of an address.
"""

import errno
import hashlib
import importlib
import os
import re
import secrets
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, TypeVar

from metalforge.core.errors import MetalforgeError, PluginError, SpecError, UnknownNameError
from metalforge.core.files import half_written, new_scratch, opened, replacing

from .directory import sweep_folder, writable_directory

OBJECTS: dict[str, str] = {"s3": "s3fs", "gs": "gcsfs", "memory": "fsspec"}
"""Kinds of object stores, with the package that knows each."""
PAUSES_S = (0.2, 1.0)
"""Before what failed is tried once more."""
SEAL = b"metalforge chain"
SEAL_BYTES = len(SEAL) + 8 + hashlib.sha256().digest_size
"""What stands after the bytes of a checkpoint that is an object: what it is, how many they are, their SHA-256."""
FIELD = "running.checkpoints"
_SECRET = re.compile(r"KEY|SECRET|TOKEN|PASS|CREDENTIAL|SAS", re.IGNORECASE)
"""In the names of variables whose values are not for messages."""

SaveTo: TypeAlias = Callable[[Path], None]
T = TypeVar("T")


class CheckpointStoreError(MetalforgeError):
    """A place for checkpoints does not answer, or refuses: what it holds is as it was, and chains can go on."""

    @property
    def first_line(self) -> str:
        """What happened, for the journal."""
        return str(self).partition("\n")[0]


class ChainFiles(ABC):
    """The checkpoints of one campaign, by chain. It goes to other processes as it is, and opens its place there.

    Where configurations are checked, a checkpoint waits as `CHAIN.UPDATES.next` until the journal has all checks before
    it, and then takes the place of the one before: it was written when some of them were on their way, and only from
    before them they can be computed again.
    """

    def settle(self, settled: Mapping[str, int], *, drop: bool = False) -> None:
        """Say that the journal has so many updates of each chain with all their checks.

        What waits for more may be dropped: a chain that is taken up begins before it.
        """
        for updates, chain, name in sorted(waits for name in self._names() if (waits := _waits(name)) is not None):
            if chain in settled and updates <= settled[chain]:
                self._move(name, _name(chain))
            elif chain in settled and drop:
                self._remove(name)

    def forget(self, chain: str, *, from_start: bool) -> None:
        """Remove the checkpoints of a chain that wait; where it is to begin again, the one before too."""
        self.settle({chain: -1}, drop=True)
        if from_start:
            self._remove(_name(chain))

    def save(self, chain: str, write: SaveTo, *, waits_at: int | None = None) -> None:
        """Keep what is written as the checkpoint of a chain, or as one that waits there: whole, or not at all."""
        self._save(_name(chain) if waits_at is None else f"{chain}.{waits_at}.next", write)

    def take_over(self, others: "ChainFiles", chains: Iterable[str]) -> None:
        """Copy the checkpoints of chains from another place."""
        for chain in chains:
            with others.reading(chain) as path:
                if path.exists():
                    self.save(chain, partial(_copy, path))

    @abstractmethod
    def where(self, chain: str) -> str:
        """Return where a chain is kept, for people."""

    @abstractmethod
    def has(self, chain: str) -> bool:
        """Return whether there is a checkpoint of a chain."""

    @abstractmethod
    def reading(self, chain: str) -> AbstractContextManager[Path]:
        """Give a file that holds the checkpoint of a chain; there is no such file where there is none."""

    @abstractmethod
    def prepare(self) -> None:
        """See that checkpoints can be kept, before a campaign relies on it."""

    @abstractmethod
    def sweep(self) -> None:
        """Remove what killed processes left half written; whoever calls holds the campaign's lock."""

    @abstractmethod
    def _names(self) -> list[str]: ...

    @abstractmethod
    def _move(self, name: str, to: str) -> None: ...

    @abstractmethod
    def _remove(self, name: str) -> None: ...

    @abstractmethod
    def _save(self, name: str, write: SaveTo) -> None: ...


@dataclass(frozen=True, slots=True)
class ChainFolder(ChainFiles):
    """Files of a folder, which is the campaign's own. One that is `apart` may fail while the journal can be written."""

    folder: Path
    apart: bool = False

    def where(self, chain: str) -> str:
        """Return where a chain is kept, for people."""
        return str(self.folder / _name(chain))

    def has(self, chain: str) -> bool:
        """Return whether there is a checkpoint of a chain."""
        return (self.folder / _name(chain)).exists()

    def reading(self, chain: str) -> AbstractContextManager[Path]:
        """Give a file that holds the checkpoint of a chain; there is no such file where there is none."""
        return nullcontext(self.folder / _name(chain))

    def prepare(self) -> None:
        """See that checkpoints can be kept, before a campaign relies on it."""
        if self.apart:
            writable_directory(self.folder)

    def sweep(self) -> None:
        """Remove what killed processes left half written; whoever calls holds the campaign's lock."""
        with self._trouble("listed"):
            sweep_folder(self.folder)

    def _names(self) -> list[str]:
        with self._trouble("listed"), suppress(FileNotFoundError):
            return os.listdir(self.folder)
        return []

    def _move(self, name: str, to: str) -> None:
        with self._trouble("written"):
            (self.folder / name).replace(self.folder / to)

    def _remove(self, name: str) -> None:
        with self._trouble("removed"):
            (self.folder / name).unlink(missing_ok=True)

    def _save(self, name: str, write: SaveTo) -> None:
        with self._trouble("written"):
            try:
                self.folder.mkdir(parents=self.apart, exist_ok=True)
            except FileNotFoundError as error:
                raise SpecError(
                    f"{self.folder.parent}: was deleted while the campaign ran\nhint: begin again, or put back a copy"
                ) from OSError(errno.ESTALE, error.strerror)
            write(self.folder / name)

    def _trouble(self, verb: str) -> AbstractContextManager[None]:
        # In its own directory a campaign could not write its journal either, and ends.
        return _trouble(str(self.folder), verb) if self.apart else nullcontext()


@dataclass(frozen=True, slots=True)
class ChainObjects(ChainFiles):
    """Objects below an address. One is written under another key and sealed before it has its own: never half of it."""

    address: str

    def where(self, chain: str) -> str:
        """Return where a chain is kept, for people."""
        return self._key(_name(chain))

    def has(self, chain: str) -> bool:
        """Return whether there is a checkpoint of a chain."""
        return bool(self._ask("read", lambda store: store.exists(self.where(chain))))

    @contextmanager
    def reading(self, chain: str) -> Iterator[Path]:
        """Give a file that holds the checkpoint of a chain; there is no such file where there is none."""
        with TemporaryDirectory(prefix="metalforge-") as folder:
            file, key = Path(folder) / _name(chain), self.where(chain)

            def fetch(store: Any) -> bool:
                with suppress(FileNotFoundError):
                    store.get_file(key, str(file))
                    return True
                file.unlink(missing_ok=True)
                return False

            if self._ask("read", fetch):
                _open_seal(file, key)
            yield file

    def prepare(self) -> None:
        """See that checkpoints can be kept, before a campaign relies on it."""
        probe = new_scratch()
        self._save(probe, Path.touch)
        self._remove(probe)

    def sweep(self) -> None:
        """Remove what killed processes left half written; whoever calls holds the campaign's lock."""
        for name in self._names():
            if half_written(name):
                self._remove(name)

    def _names(self) -> list[str]:
        def names(store: Any) -> list[str]:
            with suppress(FileNotFoundError):
                return [entry.rpartition("/")[2] for entry in store.ls(self.address, detail=False)]
            return []

        return self._ask("listed", names)

    def _move(self, name: str, to: str) -> None:
        def move(store: Any) -> None:
            store.cp_file(self._key(name), self._key(to))
            store.rm_file(self._key(name))

        self._ask("written", move)

    def _remove(self, name: str) -> None:
        def remove(store: Any) -> None:
            with suppress(FileNotFoundError):
                store.rm_file(self._key(name))

        self._ask("removed", remove)

    def _save(self, name: str, write: SaveTo) -> None:
        with _trouble(self.address, "written"), TemporaryDirectory(prefix="metalforge-") as folder:
            file, scratch = Path(folder) / "checkpoint.h5", new_scratch()
            write(file)
            size = _seal(file)

            def put(store: Any) -> None:
                store.put_file(str(file), self._key(scratch))
                store.invalidate_cache()
                if (came := store.info(self._key(scratch))["size"]) != size:
                    raise OSError(f"{came} of {size} bytes arrived")
                # Stores have no renaming; a copy within one appears whole.
                store.cp_file(self._key(scratch), self._key(name))

            try:
                self._ask("written", put)
            finally:
                with suppress(CheckpointStoreError):  # what is left of it is swept when the campaign is resumed
                    self._remove(scratch)

    def _key(self, name: str) -> str:
        return _below(self.address, name)

    def _ask(self, verb: str, what: Callable[[Any], T]) -> T:
        """Return what the store answers, which is asked again if it does not at once."""
        store = _file_system(self.address)
        pauses_s = iter(PAUSES_S)
        while True:
            try:
                store.invalidate_cache()  # others write there too
                return what(store)
            except Exception as error:  # every package has its own, most of them without a common base
                pause_s = next(pauses_s, None)
                if pause_s is None or isinstance(error, FileNotFoundError | PermissionError):
                    # Not as its cause: a traceback would print text that may hold credentials.
                    raise _unavailable(self.address, verb, error) from None
                time.sleep(pause_s)


def chain_files(directory: Path, address: str = "") -> ChainFiles:
    """Return the checkpoints of the campaign of a directory, which its journal says are kept at an address."""
    protocol, path = check_address(address)
    if protocol in OBJECTS:
        return ChainObjects(address)
    return ChainFolder(Path(path), apart=True) if protocol else ChainFolder(directory / "chains")


def own_address(place: str, name: str) -> str:
    """Return a new address below a place, for a campaign of this name: no other one has it."""
    if not place:
        return ""
    readable = re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:40] or "campaign"
    return _below(place, f"{readable}-{secrets.token_hex(8)}")


def check_address(address: str) -> tuple[str, str]:
    """Return protocol and path of an address of `running.checkpoints`, both empty for none; raises `SpecError`."""
    if not address:
        return "", ""
    protocol, mark, path = address.partition("://")
    host = path.partition("/")[0] if mark else address
    if "@" in host or "?" in path:
        # What came is not said: there is a password in it.
        raise SpecError(
            f"`{FIELD}` must be an address without a user, a password or options: it is journaled and printed"
            "\nhint: credentials come from the environment, as s3fs and gcsfs take them: AWS_PROFILE, "
            "AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, ..."
        )
    if not mark:
        hint = f"file://{address}" if address.startswith("/") else "file:///shared/path"
        raise SpecError(
            f"`{FIELD}` must be empty (DIR/chains) or an address such as file:///shared/path or s3://bucket/prefix. "
            f"Got {address}\nhint: {hint}"
        )
    if protocol != "file" and protocol not in OBJECTS:
        raise UnknownNameError(f"protocol in `{FIELD}`", protocol, ["file", *OBJECTS])
    if protocol == "file" and not (path.startswith("/") and path.strip("/") and path.isprintable()):
        raise SpecError(f"`{FIELD}` must name an absolute folder: file:///shared/path, three slashes. Got {address}")
    if protocol != "file" and not re.fullmatch(r"[A-Za-z0-9._=+,/-]*", path):
        raise SpecError(f"`{FIELD}` must have letters, digits and . _ = + , / - after the protocol. Got {address}")
    if protocol in ("s3", "gs") and not host:
        raise SpecError(f"`{FIELD}` must name a bucket: {protocol}://bucket/prefix. Got {address}")
    if ".." in path.split("/"):
        raise SpecError(f"`{FIELD}` must not go upwards by `..`. Got {address}")
    return protocol, path


def _copy(source: Path, target: Path) -> None:
    with opened(source) as (stream, _), replacing(target) as copy:
        shutil.copyfileobj(stream, copy)


def _below(address: str, name: str) -> str:
    return f"{address}{'' if address.endswith('/') else '/'}{name}"


def _name(chain: str) -> str:
    return f"{chain}.h5"


def _waits(name: str) -> tuple[int, str, str] | None:
    """Return where a checkpoint waits, the chain and the name; None for the name of anything else."""
    found = re.fullmatch(r"(.+)\.([0-9]+)\.next", name)
    return None if found is None else (int(found[2]), found[1], name)


def _seal(file: Path) -> int:
    """Add to a file what tells whether it is whole; return its size."""
    with file.open("r+b") as stream:
        digest, size = hashlib.file_digest(stream, "sha256").digest(), stream.tell()
        stream.write(SEAL + size.to_bytes(8, "little") + digest)
    return size + SEAL_BYTES


def _open_seal(file: Path, key: str) -> None:
    """Take the seal off a file that came from `key`, and see whether it is as it was written."""
    with file.open("r+b") as stream:
        size = stream.seek(0, os.SEEK_END) - SEAL_BYTES
        stream.seek(max(size, 0))
        seal = stream.read()
        if not seal.startswith(SEAL):
            raise SpecError(f"{key}: is cut off, or no campaign wrote it: {len(seal) + max(size, 0)} bytes, no seal")
        if (written := int.from_bytes(seal[len(SEAL) :][:8], "little")) != size:
            raise SpecError(f"{key}: must hold {written} bytes. Got {size}")
        stream.truncate(size)
        stream.seek(0)
        if hashlib.file_digest(stream, "sha256").digest() != seal[len(SEAL) + 8 :]:
            raise SpecError(f"{key}: is damaged: its bytes have another SHA-256 than those that were written")


def _file_system(address: str) -> Any:
    """Return what `fsspec` has for an address, made anew or not, in whichever process this is."""
    protocol, _ = check_address(address)
    try:
        return importlib.import_module("fsspec").filesystem(protocol)
    except ImportError as error:
        package = OBJECTS.get(protocol, "fsspec") if getattr(error, "name", "") != "fsspec" else "fsspec"
        raise PluginError(
            f"checkpoints at {address} need the package {package}, which is not installed\nhint: pip install "
            + ("'metalforge[ray]'" if package == "fsspec" else f"'metalforge[ray]' {package}")
        ) from error
    except Exception as error:
        raise _unavailable(address, "opened", error) from None


@contextmanager
def _trouble(where: str, verb: str) -> Iterator[None]:
    try:
        yield
    except (OSError, SpecError) as error:
        raise _unavailable(where, verb, error) from error


def _unavailable(where: str, verb: str, error: Exception) -> CheckpointStoreError:
    said = str(error).partition("\n")[0] or type(error).__name__
    if isinstance(error, OSError):
        said = error.strerror or said
    return CheckpointStoreError(
        f"checkpoints at {where} cannot be {verb} ({without_secrets(said)})"
        "\nhint: see that the place can be reached and written; what has begun goes on by `metalforge resume`"
    )


def without_secrets(text: str) -> str:
    """Return a line of somebody else's without what may be a secret: users and options of addresses, known values."""
    text = re.sub(r"(?<=://)[^/\s@]*@", "", text)
    text = re.sub(r"\?\S*", "?...", text)
    for name, value in os.environ.items():
        if len(value) >= 6 and _SECRET.search(name):
            text = text.replace(value, "...")
    return text[:300]
