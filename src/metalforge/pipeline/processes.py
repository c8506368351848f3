"""A stage in a process of its own: what happens there cannot take the run down, and a crash loses nothing.

The host here keeps the last checkpoint of the stage's state and every input since. When the process dies it is started
again from the checkpoint, the inputs are replayed (their outputs went out already and are dropped), and the item that
was under way is tried once more. So for the rest of the graph each item is processed once; what the stage did to the
outside world may have happened twice. That a replay leads to the same state is the stage's to keep: no clocks, no
unseeded random numbers.
"""

import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from metalforge.core import SpecError

from .errors import StageCrashError, StageTimeoutError
from .graph import StageSpec
from .stages import FunctionStage, IterableSource
from .wire import receive_object, send_object

if TYPE_CHECKING:
    from .ray_ import RayConnection

_OPEN_TIMEOUT_S = 120.0  # importing what a stage needs may take long on a busy machine
_END_TIMEOUT_S = 5.0


class Died(Exception):  # noqa: N818 - handled here, never seen outside
    """The process is gone."""


Connection: TypeAlias = "Child | RayConnection"
"""A process that answers requests."""


class Child:
    """A Python process that runs `child.serve`. Started afresh, not forked: a fork would inherit device contexts."""

    def __init__(self, spec: StageSpec) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "metalforge.pipeline.child", str(theirs.fileno())]
        with theirs:  # the child has its own copy
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self._socket = ours
        self.pid: int | None = self._process.pid
        main = _main_file(spec)
        self._hello: Any = sys.path, None if main is None else str(main)

    def request(self, verb: str, arguments: tuple[Any, ...], timeout_s: float | None) -> Any:
        """Return the answer; raises what the stage raised, `Died`, or TimeoutError."""
        self._socket.settimeout(timeout_s)
        try:
            if self._hello is not None:
                send_object(self._socket, self._hello)
                self._hello = None
            send_object(self._socket, (verb, arguments))
            outcome, result, trace = receive_object(self._socket)
        except TimeoutError:
            raise
        except (OSError, EOFError) as error:
            raise Died(str(error)) from error
        if outcome == "error":
            result.add_note(f"in process {self.pid}:\n{trace}")
            raise result
        return result

    def close(self) -> None:
        """Close the socket, which ends the child; one that does not end is killed."""
        self._socket.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill and reap."""
        self._process.kill()
        self._process.wait()
        self._socket.close()


def _main_file(spec: StageSpec) -> Path | None:
    """Return the script a stage was written in, when that is the program itself."""
    stage: Any = spec.stage
    if isinstance(stage, FunctionStage | IterableSource):
        stage = stage.function if isinstance(stage, FunctionStage) else stage.items
    module = getattr(stage, "__module__", None) if callable(stage) else type(stage).__module__
    if module != "__main__":
        return None
    file = getattr(sys.modules["__main__"], "__file__", None)
    return None if file is None else Path(file).resolve()


class ProcessHost:
    """The verbs of a stage, done by a process that may die at any time."""

    def __init__(self, spec: StageSpec, start: Callable[[StageSpec], Connection] = Child) -> None:
        self.spec, self._start = spec, start
        self.restarts = 0
        self.replayed = 0
        self._connection: Connection | None = None
        self._saved: bytes | None = None
        self._log: list[tuple[str, tuple[Any, ...]]] = []
        self._stopping = self._proven = False

    @property
    def pid(self) -> int | None:
        """The number of the process; None while there is none."""
        return None if self._connection is None else self._connection.pid

    def open(self, saved: bytes | None = None) -> None:
        """Start the process; a first state that has no bytes is refused now, not when it is needed."""
        self._saved = saved
        try:
            self.checkpoint()
        except BaseException:
            self._drop()
            raise

    def _revive(self) -> Connection:
        """Start a process from the last checkpoint and replay what came after it; raises `Died` when it does not."""
        self._connection = connection = self._start(self.spec)
        opened = False
        try:
            if self._stopping:
                raise Died("the run stops")
            connection.request("open", (self.spec, self._saved), _OPEN_TIMEOUT_S)
            opened = True
            for verb, arguments in self._log:
                connection.request(verb, arguments, self.spec.config.timeout_s)
                self.replayed += 1
        except TimeoutError as late:
            raise Died("it took too long to come up to where the last one was") from late
        except Exception as error:
            self._drop()  # half open it is of no use
            if opened or not isinstance(error, AttributeError | ImportError | TypeError | pickle.PicklingError):
                raise
            raise SpecError(
                f"stage `{self.spec.name}` cannot be moved into a process: {error}\n"
                "hint: a function or class of a module that can be imported, not a lambda or a closure"
            ) from error
        return connection

    def _drop(self) -> None:
        """Kill the process, if there is one; the next verb starts another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.kill()

    def _do(self, verb: str, *arguments: Any, logged: bool = True) -> Any:
        """Do something in the process, which is started where it is not there, through as many crashes as allowed."""
        name, config = self.spec.name, self.spec.config
        crashes = 0
        while True:
            try:
                connection = self._connection or self._revive()
                result = connection.request(verb, arguments, config.timeout_s)
                break
            except Died as death:
                self._drop()
                if self._stopping:
                    raise StageCrashError(f"stage `{name}` was stopped") from death
                crashes += 1
                self.restarts += 1
                if crashes > config.restarts:
                    raise StageCrashError(
                        f"the process of stage `{name}` died {crashes} times on one item: {death}"
                    ) from death
            except TimeoutError as late:
                self._drop()
                self.restarts += 1
                raise StageTimeoutError(f"a step of stage `{name}` was killed after {config.timeout_s} s") from late
        if logged:
            self._log.append((verb, arguments))
            # The first state that a step leaves is saved at once: one without bytes is better refused now than later.
            if len(self._log) >= config.checkpoint_every or not self._proven:
                self._proven = True
                self.checkpoint()
        return result

    # The verbs of a stage, with the arguments and results that they have in `hosts.LocalHost`.
    step = partialmethod(_do, "step")
    produce = partialmethod(_do, "produce")
    configure = partialmethod(_do, "configure")
    finish = partialmethod(_do, "finish", logged=False)

    def checkpoint(self) -> bytes:
        """Return the state, and forget the inputs before it."""
        saved: bytes = self._do("checkpoint", logged=False)
        self._saved, self._log = saved, []
        return saved

    def interrupt(self) -> None:
        """End the process now, for a run that stops and has waited long enough."""
        self._stopping = True
        if self._connection is not None:
            self._connection.kill()

    def close(self) -> None:
        """End the process."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
