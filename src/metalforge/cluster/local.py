"""A Ray cluster of several nodes on this machine, for trying and for tests: as many raylets as nodes are wanted.

    cluster = start_local(nodes=3, cores=2, folder="DIR/cluster")
    subprocess.run([sys.executable, "driver.py"], env=os.environ | cluster.environment())
    cluster.stop()

A process of its own, the keeper (`keeper.py`), holds the raylets: they outlive the terminal, and end with the keeper,
however it ends. It ends when it is told to (`stop`, SIGTERM), when the head is lost, and when for an hour there was
neither a driver nor an actor. All servers listen on the loopback interface only and want a token that is in
``FOLDER/cluster.token`` alone. ``FOLDER/cluster.json`` is there while the cluster is, and says what it has.
"""

import fcntl
import hashlib
import os
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import msgspec

from metalforge.core import MetalforgeError, PathLike, PluginError, SpecError, naming

from .address import MOST_CORES, MOST_NODES
from .marked import KEEPER, VARIABLE, is_marked, kill_all, mark_of, marking, send, wait_until

RECORD, TOKEN, LOG, SOCKET = "cluster.json", "cluster.token", "cluster.log", "keeper.sock"
IDLE_S = 3600.0
"""Without a driver and an actor, after which a keeper ends."""
_START_S, _NODE_S = 60.0, 30.0  # at most, for the first node and for each further: 2 and 1 on idle cores
_STOP_S, _EXIT_S = 30.0, 5.0
_TEMPORARY = "/tmp"  # paths of Unix sockets have at most 107 bytes, and Ray's names below it have 80
_TOKEN = re.compile("[0-9a-f]{64}")


class LocalClusterError(MetalforgeError):
    """A cluster on this machine that cannot start, or is gone."""


class LocalNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node: its number here, its name in Ray, its raylet's process, and the cores it offers."""

    number: int
    id: str
    pid: int
    cores: int


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``cluster.json`` holds."""

    address: str
    keeper: int
    nodes: tuple[LocalNode, ...]


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    """Where the files of a cluster are. The token is the one thing that is there from beginning to end."""

    folder: Path
    cluster: str  # what its processes are marked with

    @classmethod
    def of(cls, folder: Path) -> Self | None:
        """Return the place of a cluster that is or was in this folder."""
        with suppress(OSError, UnicodeDecodeError):
            token = (folder / TOKEN).read_text()
            if _TOKEN.fullmatch(token):
                return cls(folder, hashlib.sha256(token.encode()).hexdigest()[:16])
        return None

    @classmethod
    def make(cls, folder: Path) -> Self:
        """Make a token, which only this user can read, and the temporary folder that goes with it."""
        token = secrets.token_hex(32)
        with open(os.open(folder / TOKEN, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(token)
        place = cls(folder, hashlib.sha256(token.encode()).hexdigest()[:16])
        place.temporary.mkdir(0o700)
        return place

    @property
    def temporary(self) -> Path:
        """The folder of Ray's files and of the keeper's socket."""
        return Path(_TEMPORARY) / f"mf-{self.cluster}"

    def record(self) -> ClusterRecord | None:
        """Return what the keeper wrote last, if it is up."""
        with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return msgspec.json.decode((self.folder / RECORD).read_bytes(), type=ClusterRecord)
        return None

    def environment(self) -> dict[str, str]:
        """Return what servers, workers and drivers of the cluster share; Ray reads it when it is imported."""
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.folder / TOKEN),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux: listen on the loopback interface only
            "RAY_USAGE_STATS_ENABLED": "0",
            # Workers get what threads of this machine would get: at Ray's own 15 they stand still beside anything else.
            "RAY_worker_niceness": "0",
        }

    def clear(self) -> None:
        """End what runs and remove every file; the caller holds the folder's lock."""
        kill_all(f"{self.cluster}:")
        shutil.rmtree(self.temporary, ignore_errors=True)
        for name in (RECORD, LOG, TOKEN):  # the token last: what has one can still be cleared
            (self.folder / name).unlink(missing_ok=True)


class LocalCluster:
    """A cluster that runs on this machine, identified by its folder; made by `start_local` or `find`.

    `address` is what `ray.init` takes, `keeper` the process that holds it.
    """

    def __init__(self, place: ClusterFolder, record: ClusterRecord) -> None:
        self._place, self.folder = place, place.folder
        self.address, self.keeper = record.address, record.keeper

    @classmethod
    def find(cls, folder: PathLike) -> Self | None:
        """Return the cluster in this folder, or None; what a killed keeper left is ended and removed."""
        path = Path(folder).resolve()
        if not path.is_dir():
            return None
        found = None

        def settled() -> bool:
            nonlocal found
            with _alone(path) as lock:
                place = ClusterFolder.of(path)
                if place and lock is not None:
                    place.clear()
                    return True
            record = place.record() if place else None
            if place and record and is_marked(record.keeper, mark_of(place.cluster, KEEPER)):
                found = cls(place, record)
            return bool(found) or record is None  # else a keeper was killed and has not given its lock back yet

        wait_until(settled, _EXIT_S)
        return found

    def environment(self) -> dict[str, str]:
        """Return what a driver must have in its environment before it imports Ray; `ray.init()` then comes here."""
        return {"RAY_ADDRESS": self.address, **self._place.environment()}

    def nodes(self) -> tuple[LocalNode, ...]:
        """Return the nodes it has now; the first is the head. None, when it is gone."""
        record = self._place.record() if is_marked(self.keeper, mark_of(self._place.cluster, KEEPER)) else None
        return record.nodes if record else ()

    def add_node(self, cores: int) -> LocalNode:
        """Start one more node and return it when it has joined."""
        _require("cores", cores, MOST_CORES)
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(_NODE_S)
                line.connect(str(self._place.temporary / SOCKET))
                with line.makefile("rw") as talk:
                    print(cores, file=talk, flush=True)
                    answer = talk.readline().strip()
        except OSError as error:
            raise LocalClusterError(f"{self.folder}: the cluster does not answer ({error})") from error
        added = [node for node in self.nodes() if str(node.number) == answer]
        if not added:
            raise LocalClusterError(f"{self.folder}: no node was added: {answer or 'the cluster ended'}")
        return added[0]

    def stop(self) -> None:
        """End everything and remove every file; again is nothing."""
        keeper = mark_of(self._place.cluster, KEEPER)
        send([self.keeper], keeper, signal.SIGTERM)
        wait_until(lambda: not is_marked(self.keeper, keeper), _STOP_S)
        kill_all(f"{self._place.cluster}:")  # a keeper that hangs, or what one that was killed has left
        if self.folder.is_dir() and not wait_until(self._cleared, _STOP_S):
            raise LocalClusterError(f"{self.folder}: its cluster has ended, but another process holds the folder")

    def _cleared(self) -> bool:
        """Whether nothing of this cluster is in its folder, which has been given back or has another by now."""
        with _alone(self.folder) as lock:
            there = ClusterFolder.of(self.folder)
            if lock is not None and there == self._place:
                self._place.clear()
            return lock is not None or there not in (None, self._place)


def start_local(nodes: int, cores: int, folder: PathLike, *, idle_s: float = IDLE_S) -> LocalCluster:
    """Start a cluster of so many nodes of so many cores each, and return when all have joined.

    The folder, which is made if it is missing, has one cluster at a time and belongs to it meanwhile.
    """
    _require("nodes", nodes, MOST_NODES)
    _require("cores", cores, MOST_CORES)
    if not sys.platform.startswith("linux"):
        raise LocalClusterError(f"a cluster on one machine needs Linux. This is {sys.platform}\nhint: --cluster auto")
    if find_spec("ray") is None:
        raise PluginError("a cluster needs ray, which is not installed\nhint: pip install 'metalforge[ray]'")
    path = Path(folder).resolve()
    with naming(path, "made", LocalClusterError):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    # One that is about to end holds its lock a little longer.
    with _alone(path, 0.0 if LocalCluster.find(path) else _EXIT_S) as lock:
        if lock is None:
            raise LocalClusterError(f"{path}: has a cluster already\nhint: LocalCluster.find(folder).stop() ends it")
        if left := ClusterFolder.of(path):
            left.clear()
        with naming(path, "written", LocalClusterError):
            place = ClusterFolder.make(path)
        try:
            _start_keeper(place, lock, nodes, cores, idle_s)
            record = place.record()
            if record is None:
                raise LocalClusterError(f"{path}: the cluster ended as soon as it was up\n{_tail(path / LOG)}")
        except BaseException:
            place.clear()
            raise
    return LocalCluster(place, record)


def _start_keeper(place: ClusterFolder, lock: int, nodes: int, cores: int, idle_s: float) -> None:
    """Start a keeper that inherits the lock, and wait until it says that all nodes are up."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", VARIABLE))}
    ours |= place.environment()
    ours |= marking(place.cluster, KEEPER) | {"RAY_TMPDIR": str(place.temporary)}
    limit = _START_S + _NODE_S * (nodes - 1)
    ready, up = os.pipe()
    with open(ready, "rb") as answers, open(place.folder / LOG, "wb") as log:
        try:
            arguments = [place.folder, lock, up, nodes, cores, idle_s]
            subprocess.run(
                [sys.executable, "-P", "-m", "metalforge.cluster.keeper", *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=ours, cwd=place.temporary,
                start_new_session=True, pass_fds=(lock, up), check=False,
            )  # fmt: skip
        finally:
            os.close(up)
        if not select.select([answers], [], [], limit)[0]:
            raise LocalClusterError(f"{place.folder}: no cluster within {limit:g} s\n{_tail(place.folder / LOG)}")
        if not answers.read(1):
            raise LocalClusterError(f"{place.folder}: the cluster did not start\n{_tail(place.folder / LOG)}")


@contextmanager
def _alone(folder: Path, patience_s: float = 0.0) -> Iterator[int | None]:
    """Give the folder's lock, or None where a keeper (or a process that starts one) has it for longer than that.

    It is a lock of the folder itself, so that no file is left of it. A keeper inherits it, so that no other process can
    take the folder between the start and the keeper.
    """
    with naming(folder, "locked", LocalClusterError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield lock if wait_until(lambda: _locked(lock, folder), patience_s) else None
    finally:
        os.close(lock)


def _locked(file: int, folder: Path) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        hint = "hint: choose a folder on a local disk"
        raise LocalClusterError(f"{folder}: cannot be locked ({error.strerror})\n{hint}") from error
    return True


def _tail(log: Path) -> str:
    with suppress(OSError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-12:])
    return ""


def _require(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise SpecError(f"`{name}` must be 1 to {most}. Got {value}")
