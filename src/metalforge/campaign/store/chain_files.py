"""Where the checkpoints of a campaign's chains are kept: in its directory, in a shared folder, or in an object store.

::

    ""                    DIR/chains
    file:///shared/path   a folder that all machines of the campaign see
    s3://bucket/prefix    objects, by `fsspec`; gs:// likewise, and memory:// for tests, in one process

Anywhere but in its directory a campaign has a folder of its own, whose address its journal keeps. Credentials come from
the environment, as the packages behind `fsspec` take them, and are no part of an address.
"""

import errno
import importlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, TypeVar

from metalforge.core import (
    MetalforgeError,
    PluginError,
    SpecError,
    UnknownNameError,
    half_written,
    new_scratch,
    opened,
    replacing,
)

from .directory import sweep_folder, writable_directory

OBJECTS: dict[str, str] = {"s3": "s3fs", "gs": "gcsfs", "memory": "fsspec"}
"""Kinds of object stores, with the package that knows each."""
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


@dataclass(frozen=True, slots=True)
class ChainFiles:
    """The checkpoints of one campaign, by chain, in a folder of its own. It goes to other processes as it is.

    A folder that is `apart` from the campaign's directory may fail while the journal can be written. Where
    configurations are checked, the checkpoint before the last one is kept too: the journal may lack checks of
    configurations before the last one, and only from an earlier checkpoint they can be computed again.
    """

    place: str
    apart: bool = False

    def forget(self, chain: str) -> None:
        """Remove the checkpoints of a chain, which is to begin again."""
        self._remove(_name(chain))
        self._remove(_name(chain, before=True))

    def save(self, chain: str, write: SaveTo, *, keep: bool = False) -> None:
        """Keep what is written as the checkpoint of a chain, whole or not at all; `keep` the one that was there."""
        if keep and self.has(chain):
            self._move(_name(chain), _name(chain, before=True))
        self._save(_name(chain), write)

    def take_over(self, others: "ChainFiles", chains: Iterable[str]) -> None:
        """Copy the checkpoints of chains from another place."""
        for chain in chains:
            with others.reading(chain) as path:
                if path.exists():
                    self.save(chain, partial(_copy, path))

    def where(self, chain: str) -> str:
        """Return where a chain is kept, for people."""
        return self._key(_name(chain))

    def has(self, chain: str) -> bool:
        """Return whether there is a checkpoint of a chain."""
        return Path(self.where(chain)).exists()

    def reading(self, chain: str, *, before: bool = False) -> AbstractContextManager[Path]:
        """Give a file that holds the last checkpoint of a chain or the one `before`; no such file where none is."""
        return nullcontext(Path(self.place, _name(chain, before=before)))

    def prepare(self) -> None:
        """See that checkpoints can be kept, before a campaign relies on it."""
        if self.apart:
            writable_directory(self.place)

    def sweep(self) -> None:
        """Remove what killed processes left half written; whoever calls holds the campaign's lock."""
        with self._trouble("listed"):
            sweep_folder(Path(self.place))

    def _key(self, name: str) -> str:
        return _below(self.place, name)

    def _move(self, name: str, to: str) -> None:
        with self._trouble("written"):
            Path(self.place, name).replace(Path(self.place, to))

    def _remove(self, name: str) -> None:
        with self._trouble("removed"):
            Path(self.place, name).unlink(missing_ok=True)

    def _save(self, name: str, write: SaveTo) -> None:
        folder = Path(self.place)
        with self._trouble("written"):
            try:
                folder.mkdir(parents=self.apart, exist_ok=True)
            except FileNotFoundError as error:
                raise SpecError(
                    f"{folder.parent}: was deleted while the campaign ran\nhint: begin again, or put back a copy"
                ) from OSError(errno.ESTALE, error.strerror)
            write(folder / name)

    def _trouble(self, verb: str) -> AbstractContextManager[None]:
        # In its own directory a campaign could not write its journal either, and ends.
        return _trouble(self.place, verb) if self.apart else nullcontext()


class ChainObjects(ChainFiles):
    """Objects below an address. One is written under another key before it has its own: never half of it."""

    __slots__ = ()

    def has(self, chain: str) -> bool:
        """Return whether there is a checkpoint of a chain."""
        return bool(self._ask("read", lambda store: store.exists(self.where(chain))))

    @contextmanager
    def reading(self, chain: str, *, before: bool = False) -> Iterator[Path]:
        """Give a file that holds the last checkpoint of a chain or the one `before`; no such file where none is."""
        name = _name(chain, before=before)
        with TemporaryDirectory(prefix="metalforge-") as folder:
            file = Path(folder) / name

            def fetch(store: Any) -> None:
                try:
                    store.get_file(self._key(name), str(file))
                except FileNotFoundError:
                    file.unlink(missing_ok=True)

            self._ask("read", fetch)
            yield file

    def prepare(self) -> None:
        """See that checkpoints can be kept, before a campaign relies on it."""
        probe = new_scratch()
        self._save(probe, Path.touch)
        self._remove(probe)

    def sweep(self) -> None:
        """Remove what killed processes left half written; whoever calls holds the campaign's lock."""

        def names(store: Any) -> list[str]:
            with suppress(FileNotFoundError):
                return [entry.rpartition("/")[2] for entry in store.ls(self.place, detail=False)]
            return []

        for name in filter(half_written, self._ask("listed", names)):
            self._remove(name)

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
        with _trouble(self.place, "written"), TemporaryDirectory(prefix="metalforge-") as folder:
            file, scratch = Path(folder) / "checkpoint.h5", new_scratch()
            write(file)
            size = file.stat().st_size

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

    def _ask(self, verb: str, what: Callable[[Any], T]) -> T:
        """Return what the store answers; the packages behind `fsspec` repeat what fails for a moment."""
        try:
            store = _file_system(self.place)
            store.invalidate_cache()  # others write there too
            return what(store)
        except PluginError:
            raise
        except Exception as error:  # every package has its own, most of them without a common base
            # Not as its cause: a traceback would print text that may hold credentials.
            raise _unavailable(self.place, verb, error) from None


def chain_files(directory: Path, address: str = "") -> ChainFiles:
    """Return the checkpoints of the campaign of a directory, which its journal says are kept at an address."""
    protocol, path = check_address(address)
    if protocol in OBJECTS:
        return ChainObjects(address)
    return ChainFiles(path, apart=True) if protocol else ChainFiles(str(directory / "chains"))


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
    folder = protocol == "file"
    for wrong, wanted in (
        (
            folder and not (path.startswith("/") and path.strip("/") and path.isprintable()),
            "name an absolute folder: file:///shared/path, three slashes",
        ),
        (
            not folder and not re.fullmatch(r"[A-Za-z0-9._=+,/-]*", path),
            "have letters, digits and . _ = + , / - after the protocol",
        ),
        (protocol in ("s3", "gs") and not host, f"name a bucket: {protocol}://bucket/prefix"),
        (".." in path.split("/"), "not go upwards by `..`"),
    ):
        if wrong:
            raise SpecError(f"`{FIELD}` must {wanted}. Got {address}")
    return protocol, path


def _copy(source: Path, target: Path) -> None:
    with opened(source) as (stream, _), replacing(target) as copy:
        shutil.copyfileobj(stream, copy)


def _below(address: str, name: str) -> str:
    return f"{address}{'' if address.endswith('/') else '/'}{name}"


def _name(chain: str, *, before: bool = False) -> str:
    return f"{chain}.before.h5" if before else f"{chain}.h5"


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
