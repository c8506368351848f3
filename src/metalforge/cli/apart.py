"""Run a verb that uses Ray in a child process: Ray ends a process that has lost its cluster, without a message.

The parent does not import Ray. It passes signals on, reports when the cluster does not answer, and turns the sudden end
of the child into an error with an exit code.
"""

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeAlias

import typer

from metalforge.core import ClusterLostError

from .guard import guarded

SILENT_S, CLOSE_S = 20.0, 120.0
"""After which a cluster that does not answer is reported, and that leaving it may take at most."""
_ANSWERED, _CLOSES, _ENDED = b".", b"-", b"!"

Tell: TypeAlias = Callable[[bool], None]
"""Called with True whenever the cluster has answered, and with False before it is left."""


class Apart:
    """A verb in a child process. It starts at once; `wait` raises what its end means."""

    def __init__(self, verb: Callable[[Tell], None], directory: Path) -> None:
        self._directory = directory
        self._line, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            self._line.close()
            _carry_out(verb, theirs, parent)
        theirs.close()

    def wait(self) -> None:
        """Return when the verb has ended well.

        Raises
        ------
        ClusterLostError
            The child was ended before the verb was over.
        typer.Exit
            The verb failed, said so, and has this exit code.
        """
        with self._line, _passed_on(self._pid):
            ended = self._listen()
            code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        if not ended:
            raise self._lost(code)
        if code:
            raise typer.Exit(code)

    def _listen(self) -> bool:
        """Report silence until the verb is over or the child is gone; return whether it came to its end."""
        last, reported = b"", False
        while True:
            limit = CLOSE_S if last == _CLOSES else SILENT_S if last == _ANSWERED and not reported else None
            if not select.select([self._line], [], [], limit)[0]:
                if last == _CLOSES:
                    os.kill(self._pid, signal.SIGKILL)
                    return False
                reported = True
                sys.stderr.write(f"the cluster has not answered for {SILENT_S:g} s; still waiting\n")
                continue
            if not (said := self._line.recv(4096)):
                return False
            if reported and _ANSWERED in said:
                reported = False
                sys.stderr.write("the cluster answers again\n")
            if _ENDED in said:
                error = said.partition(_ENDED)[2] + b"".join(iter(lambda: self._line.recv(4096), b""))
                sys.stderr.write(error.decode())
                return True
            last = said[-1:]

    def _lost(self, code: int) -> ClusterLostError:
        from .scan import note_what_is_kept

        if sys.stderr.isatty():
            sys.stderr.write("\x1b[?25h")  # the live view had hidden the cursor
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        error = ClusterLostError(
            f"{self._directory}: the cluster ended or cannot be reached (the process connected to it ended with {how})"
        )
        note_what_is_kept(error, self._directory)
        return error


@contextmanager
def _passed_on(pid: int) -> Iterator[None]:
    """Pass the signals that stop a campaign on to a process."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _carry_out(verb: Callable[[Tell], None], line: socket.socket, parent: int) -> NoReturn:
    """Run the verb as this process, whose exit code is the verb's."""
    from metalforge.pipeline import end_with_parent

    os.setpgid(0, 0)  # Ctrl-C reaches the parent alone, which passes it on once
    threading.Thread(target=end_with_parent, args=(line, parent), daemon=True).start()

    def carried() -> int:
        try:
            verb(lambda answered: line.sendall(_ANSWERED if answered else _CLOSES))
        except typer.Exit as ended:
            return ended.exit_code
        return 0

    errors: list[str] = []
    code = guarded(carried, debug="--debug" in sys.argv, say=errors.append)
    with suppress(OSError):
        sys.stdout.flush()
    line.sendall(_ENDED + "".join(errors).encode())  # the parent writes it: its stderr need not be this process's
    os._exit(code)
