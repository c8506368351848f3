"""What runs on a node: one process with the producers of all lanes that the node has, a thread each.

It is an actor, made for one campaign. Its producers are those of a single machine; what comes and goes are orders and
blocks, and checkpoints are written from here to where the campaign keeps them, so that configurations never travel.
A flag that is sent here becomes the one of this process.
"""

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock
from typing import Any

import msgspec

from metalforge import native
from metalforge.campaign import CampaignSpec, chain_files, check_room, lanes_here
from metalforge.core import EnergyMeter, Quantity, SubstrateInfo
from metalforge.pipeline import StageServer, first_line, portable
from metalforge.substrates import discover

from .lanes import LaneFacts, facts_of

DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
"""What a disk answers that has failed or has no room."""
LEVEL = "METALFORGE_ISA"
"""The environment variable that names the build level of the kernels."""


HALT = Event()
"""Whether the producers of this process stop at their next update."""


def halt_here() -> Callable[[], bool]:
    """Return the flag of this process: what a campaign's flag becomes when it travels."""
    return HALT.is_set


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has."""

    host: str
    levels: tuple[str, ...]
    """Build levels of the kernels that run here."""
    silicon: tuple[SubstrateInfo, ...]
    version: str
    sees: bool
    """Whether the campaign's directory is there, with what was put into it."""


class NodeWorker:
    """The producers of one node; every public method may be called while others run."""

    def __init__(self, directory: str) -> None:
        HALT.clear()
        self._directory = Path(directory)
        self._lanes: dict[str, tuple[StageServer, ThreadPoolExecutor]] = {}
        self._meters: dict[str, EnergyMeter] = {}
        self._lock = Lock()
        self._leaving = ""

    def facts(self, probe: str = "") -> NodeFacts:
        """Return what the node has; `probe` is a file of the campaign's directory."""
        from metalforge import __version__

        return NodeFacts(
            host=os.uname().nodename,
            levels=tuple(native.available_levels()),
            silicon=tuple(one.info for one in discover().substrates),
            version=__version__,
            sees=bool(probe) and Path(probe).exists(),
        )

    def at_level(self, level: str) -> int:
        """Run the kernels at a build level from now on; return the process."""
        os.environ[LEVEL] = level
        native.kernels()  # says what is missing
        self._directory.mkdir(parents=True, exist_ok=True)
        return os.getpid()

    def lanes(self, spec: CampaignSpec, cores: int, level: str) -> list[LaneFacts]:
        """Return the lanes of a campaign on this node, of which so many cores are the campaign's."""
        self.at_level(level)
        running = msgspec.structs.replace(spec.running, producers=max(cores // spec.running.threads, 1))
        mine = msgspec.structs.replace(spec, running=running)
        found = lanes_here(mine)
        check_room(mine, found)
        chain_files(self._directory, spec.running.checkpoints).prepare()  # packages and credentials are a node's own
        for lane in found:
            self._meters.setdefault(lane.substrate.info.name, lane.substrate.meter())
        return [facts_of(lane, spec.running.threads) for lane in found]

    def joules(self, substrate: str) -> Quantity:
        """Return what silicon of this node has spent since the worker began."""
        return self._meters[substrate].total()

    def do(self, lane: str, verb: str, arguments: tuple[Any, ...]) -> Any:
        """Do a verb of a lane's producer on its own thread; a disk that failed is an OSError of its number."""
        with self._lock:
            if verb == "open" or lane not in self._lanes:
                old = self._lanes.pop(lane, None)
                # Fields of a card and pinned cores are a thread's own: a lane keeps its thread.
                self._lanes[lane] = StageServer(), old[1] if old else ThreadPoolExecutor(1, f"lane-{lane}")
            server, thread = self._lanes[lane]
        try:
            made = thread.submit(server.do, verb, arguments).result()
            if verb == "step" and self._leaving:
                thread.submit(server.do, "finish", ()).result()
                made = [replace(one, lost=self._leaving) for one in made]
        except Exception as error:
            if (number := system_error(error)) in DISK:
                raise OSError(number, first_line(error)) from error
            raise portable(error) from error
        return made

    def halt(self, stop: bool) -> None:
        """Let all producers stop at their next update, or go on."""
        if stop or self._leaving:
            HALT.set()
        else:
            HALT.clear()

    def leave(self, reason: str) -> None:
        """Give the lanes up at the next updates, with all chains in their files: the node will be taken away."""
        self._leaving = reason
        HALT.set()

    def ping(self) -> dict[str, Quantity]:
        """Return the joules of what can be read here, by its name."""
        return {name: meter.total() for name, meter in self._meters.items() if meter.unavailable() is None}


def system_error(error: BaseException | None) -> int:
    """Return the number of the system's error that one has come of, which does not travel with it; 0 where of none."""
    while error is not None:
        if isinstance(error, OSError) and error.errno:
            return error.errno
        error = error.__cause__
    return 0
