"""The socket of a campaign: threads read lines and wait for what the campaign says; its main loop alone acts.

A line that is no command is answered at once and goes no further. A caller that sends nothing, too much or too slowly,
or does not wait for the answer, delays no other caller.
"""

import os
import socket
import stat
import struct
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from pwd import getpwuid
from socketserver import BaseRequestHandler, ThreadingMixIn, UnixStreamServer

import msgspec

from metalforge.campaign.calling import SOCKET, Command, CommandAnswer, address_in, received_line
from metalforge.core import Closing, MetalforgeError

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
        self._queue: list[WaitingCommand] = []
        self._taken: list[WaitingCommand] = []
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
            for waiting in self._queue:
                if not only or waiting.command.what in only:
                    self._queue.remove(waiting)
                    self._taken = [one for one in self._taken if one.said is None] + [waiting]
                    return waiting
        return None

    def close(self) -> None:
        """Listen no more; callers that wait are told, and those that have not sent their line are not waited for."""
        with self._lock:
            self._over = True
            left, self._queue = [*self._queue, *self._taken], []
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
            self._queue.append(waiting)
            self.news.set()
        waiting.answered.wait(DONE_S)
        with self._lock:
            if waiting in self._queue:
                self._queue.remove(waiting)
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
