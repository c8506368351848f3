"""Commands to a campaign that runs: threads read lines from a socket, its main loop alone acts and writes.

A line that is no command is answered at once and goes no further. A caller that sends nothing, too much or too slowly,
or does not wait for the answer, delays no other caller.

=============================  =====================================================================================
`pause`, `resume`              the graph ends as at an interruption, with every chain in its file, and begins again;
                               meanwhile nothing is computed, and no budget of seconds is spent
`stop`                         as Ctrl-C: interrupted, and to be resumed
`extend`, `system`, `steerer`  as `metalforge resume` with the same options: the graph ends in the same way and begins
`coupling`, `remove`           again with another spec. Visits that were decided are completed as they were
`rewire`                       the screen leaves the way of the blocks, comes back, or is left to its rule again
=============================  =====================================================================================

A chain that measures is never changed: it is stopped between two updates and goes on where it was. Who resumes a
campaign that was killed while it paused wants it to go on, and it does; one that comes back by itself stays paused.
"""

import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from pwd import getpwuid
from socketserver import BaseRequestHandler, ThreadingMixIn, UnixStreamServer
from typing import TYPE_CHECKING

import msgspec

from metalforge.campaign.calling import SOCKET, Command, CommandAnswer, address_in, received_line
from metalforge.campaign.extending import extended
from metalforge.campaign.report.words import budget_text, one_line
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.store.records import Commanded, Decided, Sampled
from metalforge.core import Closing, MetalforgeError, SpecError

from .graph import SAMPLE_S

if TYPE_CHECKING:
    from .campaign import Campaign

LOOK_S = 0.05
"""Between two looks at a campaign that pauses."""


LINE_S = 5.0
"""That a caller has for its line, and for taking the answer."""
DONE_S = 120.0
"""That a campaign has to look at a command and to come to the border at which it acts."""
POLL_S = 0.05
"""Between two looks whether the socket is to be closed."""
OVER = "the campaign is over, or was stopped"
_COMMAND = msgspec.json.Decoder(Command)


@dataclass(eq=False)
class WaitingCommand:
    """A command that somebody waits for; `by` says who."""

    command: Command
    by: str
    taken: bool = False
    """Whether the campaign has looked at it."""
    said: CommandAnswer | None = None
    answered: threading.Event = field(default_factory=threading.Event)

    def answer(self, accepted: bool, said: str) -> None:
        """Say what becomes of it; the first answer counts."""
        if self.said is None:
            self.said = CommandAnswer(accepted=accepted, said=said)
            self.answered.set()


class CommandSocket(Closing):
    """Listens in a directory, whose lock its caller holds, until it is closed: a socket that is there is a dead one's.

    Raises `OSError` where there can be no socket.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / SOCKET
        self._waiting: list[WaitingCommand] = []
        self._reading: set[socket.socket] = set()
        self._lock, self.news = threading.Lock(), threading.Event()
        self._over = False
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(self._path.lstat().st_mode):
                raise OSError(f"{self._path} is there, and no socket")
            self._path.unlink()
        self._server = _Server(directory, self.heard)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), name="commands", daemon=True)
        self._thread.start()

    def take(self, *, only: Collection[str] = ()) -> WaitingCommand | None:
        """Return the next command, or the next of a kind; None where there is none. The main loop's call."""
        with self._lock:
            self.news.clear()
            found = (one for one in self._waiting if not one.taken and (not only or one.command.what in only))
            if (waiting := next(found, None)) is not None:
                waiting.taken = True
            return waiting

    def close(self) -> None:
        """Listen no more; callers that wait are told, and those that have not sent their line are not waited for."""
        with self._lock:
            self._over = True
            left = list(self._waiting)
            for connection in self._reading:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)
        for waiting in left:
            waiting.answer(False, OVER)
        self._server.shutdown()
        with suppress(OSError):  # on a dead disk; a dead socket is replaced when the campaign is resumed
            self._path.unlink()
        self._server.server_close()

    def heard(self, connection: socket.socket) -> CommandAnswer:
        """Return the answer to what comes by a connection, from the thread of its caller."""
        with self._lock:
            self._reading.add(connection)
            if self._over:
                connection.shutdown(socket.SHUT_RD)
        try:
            command = _COMMAND.decode(received_line(connection, LINE_S))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError, MetalforgeError) as error:
            said = OVER if self._over else f"not a command: {str(error) or type(error).__name__}"
            return CommandAnswer(accepted=False, said=said)
        finally:
            with self._lock:
                self._reading.discard(connection)
        waiting = WaitingCommand(command, f"{_caller(connection)} ({command.through})")
        with self._lock:
            if self._over:
                return CommandAnswer(accepted=False, said=OVER)
            self._waiting.append(waiting)
            self.news.set()
        waiting.answered.wait(DONE_S)
        with self._lock:
            self._waiting.remove(waiting)
            if not waiting.taken and not waiting.said:
                return CommandAnswer(accepted=False, said=f"the campaign was busy for {DONE_S:g} s: ask again")
        later = "it is taken, and in effect when the update that is under way is over: the journal will say"
        return waiting.said or CommandAnswer(accepted=True, said=later)


class _Server(ThreadingMixIn, UnixStreamServer):
    """Gives every caller a thread, in which `heard` finds the answer; closing it waits for them."""

    def __init__(self, directory: Path, heard: Callable[[socket.socket], CommandAnswer]) -> None:
        self.heard = heard
        with address_in(directory) as address:
            super().__init__(address, _Caller, bind_and_activate=False)
            try:
                self.server_bind()
                # Before it listens nobody is let in, so that there is no moment at which others were.
                os.chmod(directory / SOCKET, 0o600)
                self.server_activate()
            except OSError:
                self.server_close()
                raise


class _Caller(BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        connection = self.request
        with suppress(OSError):  # a caller that left
            answer = self.server.heard(connection)
            connection.settimeout(LINE_S)
            connection.sendall(msgspec.json.encode(answer) + b"\n")
            connection.setblocking(False)
            # What was sent beyond a line is read and dropped: closed over it, the answer would be lost.
            for _ in range(16):
                if not connection.recv(1 << 16):
                    break


def _caller(connection: socket.socket) -> str:
    """Return the name of the user at the other end: the owner or root, others are not let in."""
    uid = os.getuid()
    if hasattr(socket, "SO_PEERCRED"):
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
    try:
        return getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


class Controls:
    """Takes the commands for one campaign and carries them out."""

    def __init__(self, campaign: "Campaign") -> None:
        self._campaign = campaign
        self._socket: CommandSocket | None = None
        self.turning: WaitingCommand | None = None
        """The command for which the graph is to end, so that it can be carried out."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take commands in this block; a place that can have no socket runs its campaign all the same."""
        try:
            opened = CommandSocket(self._campaign.directory)
        except OSError as error:
            self._campaign.book.write(Decided(what="controls", by="socket", reason=f"no commands are taken: {error}"))
            yield
            return
        with opened as self._socket:
            try:
                yield
            finally:
                if self.turning is not None:
                    self.turning.answer(False, "the campaign ended")

    def look(self) -> None:
        """Take what was asked; a command that must wait for a border is the last until that comes."""
        while self._socket is not None:
            if (waiting := self._socket.take(only=("stop",) if self.turning else ())) is None:
                return
            with self._refusing(waiting):
                self._hear(waiting)

    def turn(self) -> bool:
        """Do what the graph has ended for; return whether it is to begin again."""
        waiting, self.turning = self.turning, None
        if waiting is None:
            return False
        with self._refusing(waiting):
            if self._campaign.halted:
                raise SpecError("the campaign was stopped before")
            if waiting.command.what == "pause":
                self._say(waiting, True, "paused")
            else:
                self._change(waiting)
        self._pause()
        return not self._campaign.halted

    def stay_paused(self) -> None:
        """Go on pausing in a process that nobody has asked to go on."""
        if self._socket is not None:
            reason = "it was paused when the process before this one ended"
            self._campaign.book.write(Commanded(by="supervisor", what="pause", accepted=True, reason=reason))
            self._pause()

    @contextmanager
    def _refusing(self, waiting: WaitingCommand) -> Iterator[None]:
        """Refuse a command that cannot be carried out in this block, with the reason."""
        try:
            yield
        except MetalforgeError as error:
            self._say(waiting, False, one_line(str(error)))

    def _pause(self) -> None:
        """Wait while the campaign is paused, and take commands."""
        campaign, book, due = self._campaign, self._campaign.book, 0.0
        while campaign.state.pause is not None and not campaign.halted and self._socket is not None:
            if (now := time.monotonic()) >= due:
                due = now + SAMPLE_S
                book.write(Sampled(window_s=0.0, stages=(), paused=True))
            book.journal.tick()
            self._socket.news.wait(LOOK_S)
            self.look()

    def _hear(self, waiting: WaitingCommand) -> None:
        """Carry out what can be now, and let the graph end for the rest; raises where it cannot be."""
        paused, campaign = self._campaign.state.pause is not None, self._campaign
        match waiting.command.what:
            case "stop":
                self._say(waiting, True, "stops at the next update; metalforge resume goes on")
                campaign.interrupt(f"stopped by {waiting.by}")
            case "pause" | "resume" as what if paused == (what == "pause"):
                raise SpecError("it is paused already" if paused else "it is not paused")
            case "resume":
                self._say(waiting, True, "goes on")
            case "pause":
                self.turning = waiting
            case "rewire":
                if campaign.spec.running.deterministic:
                    raise SpecError("a deterministic campaign keeps its graph: what a screen misses goes by the clock")
                if campaign.rule is None:
                    raise SpecError(f"ordering {campaign.state.ordering} has no screen")
                said = {"before": "in the way of the blocks", "beside": "beside it", "auto": "left to its rule"}
                self._say(waiting, True, f"the screen is {said[waiting.command.screen]} from the next border on")
            case _ if paused:
                self._change(waiting)
            case _:
                self._wanted(waiting)
                self.turning = waiting

    def _wanted(self, waiting: WaitingCommand) -> CampaignSpec:
        """Return the spec that a command asks for; raises where it cannot be."""
        spec = extended(self._campaign.state, waiting.command.extension)
        if spec == self._campaign.spec:
            raise SpecError("the campaign is so already")
        return spec

    def _change(self, waiting: WaitingCommand) -> None:
        """Take another spec: what was decided stays, what is decided from here on goes by it."""
        self._campaign.change(self._wanted(waiting), _record(waiting))
        extends = waiting.command.what == "extend"
        waiting.answer(True, f"now ends at {budget_text(self._campaign.spec)}" if extends else "in force")

    def _say(self, waiting: WaitingCommand, accepted: bool, said: str) -> None:
        """Write what was asked and said, then say it."""
        self._campaign.book.write(_record(waiting, accepted=accepted, reason="" if accepted else said))
        waiting.answer(accepted, said)


def _record(waiting: WaitingCommand, *, accepted: bool = True, reason: str = "") -> Commanded:
    command = waiting.command
    return Commanded(by=waiting.by, what=command.what, asked=command.asked, accepted=accepted, reason=reason)
