"""The socket of a campaign: threads read lines and wait for what the campaign says; its main loop alone acts.

A line that is no command is answered at once and goes no further. Whoever sends nothing, too much or too slowly, or
does not wait for the answer, holds nobody up.
"""

import os
import selectors
import socket
import stat
import struct
import threading
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from pwd import getpwuid

import msgspec

from metalforge.campaign.calling import SOCKET, Command, CommandAnswer, address_in, received_line
from metalforge.core.closing import Closing
from metalforge.core.errors import MetalforgeError

LINE_S = 5.0
"""That a caller has for its line, and for taking the answer."""
TAKEN_S, DONE_S = 30.0, 120.0
"""That a campaign has to look at a command, and then to come to the border at which it acts."""
LEAVE_S = 0.5
"""That a campaign which is over waits for its last words to be sent."""
MOST_CALLERS = 16
_COMMAND = msgspec.json.Decoder(Command)


class WaitingCommand:
    """A command that somebody waits for."""

    def __init__(self, command: Command, who: str) -> None:
        self.command = command
        self.by = f"{who} ({command.through})"
        self._answered = threading.Event()
        self._answer: CommandAnswer | None = None

    def answer(self, accepted: bool, said: str) -> None:
        """Say what becomes of it; the first word counts."""
        if self._answer is None:
            self._answer = CommandAnswer(accepted=accepted, said=said)
            self._answered.set()

    def wait(self, limit_s: float) -> CommandAnswer | None:
        """Return what was said; None where nothing was in time."""
        return self._answer if self._answered.wait(limit_s) else None


class CommandSocket(Closing):
    """Listens in a directory, whose lock its caller holds, until it is closed: a socket that is there is a dead one's.

    Raises `OSError` where there can be no socket.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / SOCKET
        self._queue: deque[WaitingCommand] = deque()
        self._lock, self.news = threading.Lock(), threading.Event()
        self._over = False
        self._callers: set[threading.Thread] = set()
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(self._path.lstat().st_mode):
                raise OSError(f"{self._path} is there, and no socket")
            self._path.unlink()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with address_in(directory) as address:
                self._socket.bind(address)
            # Before it listens nobody is let in, so that there is no moment at which others were.
            os.chmod(self._path, 0o600)
            self._socket.listen(MOST_CALLERS)
        except OSError:
            self._socket.close()
            raise
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._listen, name="commands", daemon=True)
        self._thread.start()

    def take(self, *, only: Collection[str] = ()) -> WaitingCommand | None:
        """Return the next command, or the next of a kind; None where there is none. The main loop's call."""
        with self._lock:
            self.news.clear()
            for waiting in self._queue:
                if not only or waiting.command.what in only:
                    self._queue.remove(waiting)
                    return waiting
        return None

    def close(self) -> None:
        """Listen no more; whoever waits is told."""
        with self._lock:
            self._over = True
            left, self._queue = list(self._queue), deque()
        for waiting in left:
            waiting.answer(False, "the campaign is over, or was stopped")
        self._wake.close()
        self._thread.join()
        with suppress(OSError):  # on a dead disk; a dead socket is replaced when the campaign is resumed
            self._path.unlink()
        deadline = time.monotonic() + LEAVE_S
        for caller in self._callers:
            caller.join(max(deadline - time.monotonic(), 0.0))

    def _listen(self) -> None:
        with self._socket, self._woken, selectors.DefaultSelector() as ready:
            for each in (self._socket, self._woken):
                ready.register(each, selectors.EVENT_READ)
            while all(key.fileobj is self._socket for key, _ in ready.select()):
                try:
                    connection, _ = self._socket.accept()
                except OSError:  # it has gone again
                    continue
                self._callers = {caller for caller in self._callers if caller.is_alive()}
                if len(self._callers) >= MOST_CALLERS:
                    connection.close()
                    continue
                caller = threading.Thread(target=self._serve, args=(connection,), name="caller", daemon=True)
                self._callers.add(caller)
                caller.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # a caller that left
            answer = self._heard(connection)
            connection.settimeout(LINE_S)
            connection.sendall(msgspec.json.encode(answer) + b"\n")
            connection.setblocking(False)
            # What was sent beyond a line is read and dropped: closed over it, the answer would be lost.
            for _ in range(MOST_CALLERS):
                if not connection.recv(1 << 16):
                    break

    def _heard(self, connection: socket.socket) -> CommandAnswer:
        """Return the answer to what comes by a connection."""
        try:
            command = _COMMAND.decode(received_line(connection, LINE_S))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError, MetalforgeError) as error:
            return CommandAnswer(accepted=False, said=f"not a command: {str(error) or type(error).__name__}")
        waiting = WaitingCommand(command, _caller(connection))
        with self._lock:
            if self._over:
                return CommandAnswer(accepted=False, said="the campaign is over, or was stopped")
            self._queue.append(waiting)
            self.news.set()
        if (answer := waiting.wait(TAKEN_S)) is not None:
            return answer
        with self._lock:
            if waiting in self._queue:
                self._queue.remove(waiting)
                return CommandAnswer(accepted=False, said=f"the campaign was busy for {TAKEN_S:g} s: ask again")
        later = "it is taken, and in effect when the update that is under way is over: the journal will say"
        return waiting.wait(DONE_S) or CommandAnswer(accepted=True, said=later)


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
