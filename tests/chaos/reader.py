"""A process that reads strangers' files: lines of the command line in, what each came to out; memory and time are held.

``python -m chaos.reader FOLDER`` takes lines of JSON, the arguments of one call each. `Reader` is its other end: a file
that kills the process or holds it up is a fault with a name, and the next file gets a new process.
"""

import io
import re
import resource
import select
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import msgspec

MEGABYTES, ADDRESSES = 512, 2048
"""What a process may hold at any time, the interpreter and its libraries included; and what it may set aside."""
SECONDS = 5.0
"""Of computing, for a file."""
AT_ONCE = 50
"""Lines on their way: few enough for the answers to fit into a pipe."""
PATIENCE_S = 90.0
"""Of waiting: other processes may have the processor."""
CODES = (0, 1, 2, 3)
"""Done, a check failed, a wrong file, and what this machine cannot do."""
CONTROL = re.compile(r"[^\n -~\xa0-\U0010ffff]|[\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that move a terminal's cursor, or change what is read before and after them."""


class Came(msgspec.Struct, frozen=True, kw_only=True):
    """What one call came to: its exit code, what it took, what it said last, and what was wrong, if anything."""

    code: int = -1
    seconds: float = 0.0
    megabytes: float = 0.0
    said: str = ""
    fault: str = ""


class Reader:
    """The process, started when it is needed and again after it was lost."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._process = folder, None

    def call(self, *arguments: str) -> Came:
        """Call the command line with these arguments, in the folder."""
        return self.calls([arguments])[0]

    def calls(self, lines: Sequence[Sequence[str]]) -> list[Came]:
        """Call several lines, which are handed over some at a time: processes that wait for each other take turns."""
        found: list[Came] = []
        while len(found) < len(lines):
            found += self._some(lines[len(found) : len(found) + AT_ONCE])
        return found

    def _some(self, lines: Sequence[Sequence[str]]) -> list[Came]:
        """Return what came of lines, up to the first that was a fault: what is held then is not the next file's."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "chaos.reader", str(self._folder)],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        process, found = self._process, []
        process.stdin.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        while len(found) < len(lines) and not (found and found[-1].fault):
            ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
            if line := process.stdout.readline() if ready else b"":
                found.append(msgspec.json.decode(line, type=Came))
            else:
                ended = process.wait() if ready else f"no answer in {PATIENCE_S:.0f} s"
                found.append(Came(fault=f"the process ended: {ended}"))
        if found[-1].fault:
            self.close()
        return found

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process = None


def _status(name: str) -> float:
    """Return a figure of this process, in MB."""
    return int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024


def _called(main: object, folder: str, arguments: list[str]) -> Came:
    Path("/proc/self/clear_refs").write_text("5")  # the largest size so far is that of this file
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True) for _ in range(2))
    before, code = time.process_time(), -1
    with redirect_stdout(out), redirect_stderr(err), mock.patch.object(sys, "argv", ["metalforge", *arguments]):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    seconds, megabytes = time.process_time() - before, _status("VmHWM")
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]
    faults = {
        f"ended with {code}: {said[1][:300]}": code not in CODES,
        "a traceback": "Traceback" in "".join(said),
        "no line that says why": code in (2, 3) and not re.match("(warning: .*\n)*(error|Error|Usage)", said[1]),
        "control characters": any(map(CONTROL.search, said)),
        f"{megabytes:.0f} MB": megabytes > MEGABYTES,
        f"wanted more: {said[1][:200]}": bool(re.search("(?i)allocat|not enough memory", said[1])),
        f"{seconds:.1f} s": seconds > SECONDS,
    }
    fault = ", ".join(name for name, there in faults.items() if there)
    return Came(code=code, seconds=seconds, megabytes=megabytes, said=said[1][:300], fault=fault)


def serve(folder: str) -> None:
    """Answer lines until there are none."""
    import onnxruntime
    import typer

    from metalforge.cli import main
    from metalforge.hybrid.model.onnx_import import load_onnx  # noqa: F401
    from metalforge.hybrid.routing.router import OperationRouter  # noqa: F401
    from metalforge.reservoir import files  # noqa: F401

    onnxruntime.set_default_logger_severity(4)
    sys.set_int_max_str_digits(4300)
    module = sys.modules[main.__module__]
    command = typer.main.get_command(module.app)  # once: to make it takes longer than most files
    limit = int((_status("VmSize") + ADDRESSES) * 2**20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = sys.stdout.buffer
    with mock.patch.object(module, "app", command):
        for line in sys.stdin.buffer:
            with warnings.catch_warnings():
                came = _called(main, folder, msgspec.json.decode(line))
            answers.write(msgspec.json.encode(came) + b"\n")
            answers.flush()


if __name__ == "__main__":
    import os

    os.chdir(sys.argv[1])
    serve(sys.argv[1])
