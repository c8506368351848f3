"""Wrong command lines, made of the command line's own definition: every verb and every option, as soon as it is there.

Each ends with a documented exit code and, where it is refused, one line that says why; it changes nothing outside of
the folder it is called in, and no wrong value that is certain to be wrong is taken.
"""

import inspect
import os
import random
import re
import shutil
import signal
import sys
import threading
import types
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints
from unittest import mock

import numpy as np
import typer

from metalforge.campaign.report.spec_text import spec_text
from metalforge.cli.main import _called, app
from reference.command_line import call, run

from .damages import LITTLE

GOLDEN = Path(__file__).parents[1] / "golden" / "formats"
LIMIT_S = 0.15
"""After so long a line that is being done is interrupted: what is wrong with it is found before."""
REFUSAL_S = 20.0
"""After so long one that is certain to be wrong: it must be refused, on a busy machine too."""
CODES = {0, 1, 2, 3, 75, 130}
"""Of all that is documented, 70 is a fault of metalforge."""
ODD = "odd\udcffname"
"""A file name that is no UTF-8, as Python spells it."""

WRONG: dict[type, tuple[str, ...]] = {
    int: ("", "x", "1.5", "nan", "0x10", "-1", "0", "-9223372036854775809", "100000000000000000000", "9" * 5000),
    float: ("", "x", "nan", "-nan", "1,5", "-1", "0", "inf", "-inf", "1e309", "1e-320"),
    str: ("", "absent", "../../outside", "a\nb", ODD, "%s%n{0}", "-", "[bold]x[/", "é☃", "x" * 5000, "nan", "0"),
    Path: (
        "",
        "absent/below/file",
        ".",
        "noise",
        "empty",
        "nested.toml",
        "bytes.toml",
        "pipe",
        ODD,
        "x" * 300,
        "m.npy/x",
    ),
    bool: ("",),
}
CERTAIN: dict[type, set[str]] = {
    int: {"", "x", "1.5", "nan", "0x10"},
    float: {"", "x", "nan", "-nan", "1,5"},
    str: {""},
    Path: {""},
    bool: set(),
}
"""Values that no option of a kind may take."""


class Parameter(NamedTuple):
    """An option, or an argument where there is no flag; `count` values of a kind, any number where it is negative."""

    name: str
    flag: str
    kind: type
    count: int
    required: bool


class Verb(NamedTuple):
    """The words of a verb and what it takes."""

    words: tuple[str, ...]
    parameters: tuple[Parameter, ...]


class Outcome(NamedTuple):
    """A line, the code it ended with, and the fault that was found; empty where there is none."""

    line: tuple[str, ...]
    code: int
    fault: str


BASES: dict[str, dict[str, str]] = {
    "scan": {"spec": "little.toml", "out": "run"},
    "resume": {"directory": "done"},
    "replay": {"directory": "done"},
    "report": {"directory": "done"},
    "watch": {"directory": "done"},
    "route": {"workload": "md_force"},
    "search": {"trials": "1", "finalists": "1"},
    "lattice generate": {"dims": "4 4 4 2", "warmup": "1", "trajectories": "2"},
    "lattice measure": {"files": "links.h5"},
    "npu compile": {"model": "m.npy", "output": "out.mfp"},
    "npu inspect": {"program": "m.mfp"},
    "npu run": {"model": "m.mfp", "inputs": "x.npy"},
    "npu explain": {"model": "m.npy"},
    "pipeline check": {"topology": "good.toml"},
    "pipeline show": {"topology": "good.toml"},
    "pipeline run": {"topology": "good.toml"},
}
"""Lines that are right, by the names of parameters, for attacks to begin with; a verb may do without."""

TOPOLOGY = """
[[stages]]
name = "numbers"
use = "lines_stages:numbers"
[[stages]]
name = "last"
use = "metalforge.pipeline:Collect"
[[edges]]
from = "numbers"
to = "last"
"""


def verbs() -> list[Verb]:
    """Return every verb with its parameters, as the command line defines them."""

    def below(command: Any, words: tuple[str, ...]) -> Iterator[Verb]:
        if not hasattr(command, "commands"):
            hints = get_type_hints(inspect.unwrap(command.callback))
            yield Verb(words, tuple(_parameter(one, hints) for one in command.params if one.name in hints))
            return
        for name, one in command.commands.items():
            yield from below(one, (*words, name))

    return list(below(typer.main.get_command(app), ()))


def _parameter(one: Any, hints: Mapping[str, Any]) -> Parameter:
    flag = "" if one.param_type_name == "argument" else max(one.opts, key=len)
    return Parameter(one.name, flag, _kind(hints[one.name]), one.nargs, one.required)


def _kind(hint: Any) -> type:
    """Return what one value is, of an optional or repeated one too."""
    inner = [part for part in get_args(hint) if part is not types.NoneType]
    if inner:
        return _kind(inner[0])
    return str if issubclass(hint, Enum) else hint  # one of a few words is a word


def spelled(verb: Verb, values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the line that gives these values, by the names of parameters: arguments as they stand, then options."""
    words = [*verb.words]
    for one in sorted(verb.parameters, key=lambda parameter: bool(parameter.flag)):
        if one.name in values:
            text = values[one.name]
            several = text.split(" ") if one.count > 1 and " " in text else [text] * max(one.count, 1)
            words += ([one.flag] if one.flag else []) + ([] if one.kind is bool else several)
    return tuple(words)


def one_by_one(verb: Verb, parameter: Parameter) -> list[tuple[tuple[str, ...], bool]]:
    """Return right lines of a verb with a wrong value of one parameter, each; and whether it is certain to be wrong."""
    base = BASES.get(" ".join(verb.words), {})
    return [
        (spelled(verb, base | {parameter.name: text}), text in CERTAIN[parameter.kind])
        for text in WRONG[parameter.kind]
    ]


def at_random(seed: int) -> tuple[str, ...]:
    """Return a line with several things wrong: values, options that are not there, arguments too many or too few."""
    rng = random.Random(seed)
    verb = rng.choice(verbs())
    base = BASES.get(" ".join(verb.words), {})
    # Without these, processes would work on for minutes after an interruption that only their parent saw.
    values = (
        {name: text for name, text in base.items() if name in ("quick", "workers")} if rng.random() < 0.2 else {**base}
    )
    for parameter in rng.sample(verb.parameters, min(rng.randint(1, 3), len(verb.parameters))):
        values[parameter.name] = rng.choice(WRONG[parameter.kind])
    line = list(spelled(verb, values))
    if rng.random() < 0.2:
        line.insert(
            rng.randint(0, len(line)), rng.choice(["--nonsense", "-z", "--", "surplus", "--json=1", "--help=x"])
        )
    if rng.random() < 0.1 and len(line) > len(verb.words):  # a group without a verb shows its help
        line.pop()
    if rng.random() < 0.1:
        rng.shuffle(line)
    return tuple(line)


class House:
    """A folder of inputs, right and wrong, in a copy of which each line is called."""

    def __init__(self, folder: Path) -> None:
        self._inputs, self._calls, self._count = folder / "inputs", folder / "calls", 0
        (made := self._inputs).mkdir()
        (made / "little.toml").write_text(spec_text(LITTLE))
        (made / "noise").write_bytes(random.Random(1).randbytes(999))
        (made / "empty").touch()
        (made / "nested.toml").write_text("a = " + "[" * 20_000 + "]" * 20_000)
        (made / "bytes.toml").write_bytes(b'name = "\xff"\n')
        (made / "lines_stages.py").write_text("def numbers():\n    return [1, 2]\n")
        (made / "good.toml").write_text(TOPOLOGY)
        (made / "done").mkdir()
        shutil.copy(GOLDEN / "campaign.jsonl", made / "done" / "journal.jsonl")
        np.save(made / "m.npy", np.eye(8))
        np.save(made / "x.npy", np.ones((1, 8)))
        call("npu", "compile", "m.npy", "-o", "m.mfp", cwd=made)
        short = ("--dims", "4", "4", "4", "2", "--warmup", "0", "--trajectories", "1")
        call("lattice", "generate", *short, "--out", "chain", cwd=made)
        next((made / "chain").glob("configuration-*.h5")).rename(made / "links.h5")
        shutil.rmtree(made / "chain")

    def attack(self, line: tuple[str, ...], certain: bool = False) -> Outcome:
        """Call a line in a folder of its own, at most for a moment; `certain`: it must be refused as wrong."""
        self._count += 1
        top = self._calls / str(self._count)
        here = top / "between" / "here"
        shutil.copytree(self._inputs, here)
        os.mkfifo(here / "pipe")
        home = {"HOME": str(here / "home"), "XDG_CACHE_HOME": str(here / "home")}
        with (
            _for_a_moment(REFUSAL_S if certain else LIMIT_S),
            mock.patch.dict(os.environ, home),
            mock.patch.object(sys, "path", [*sys.path]),
        ):
            done = run(*line, cwd=here)
        said = done.stderr.splitlines()
        errors = [text for text in said if re.match("error: |Error: ", text)]
        outside = [*top.iterdir(), *(top / "between").iterdir()] != [top / "between", here]
        faults = {
            f"ended with {done.code}": done.code not in CODES,
            "a traceback": "Traceback" in done.stdout + done.stderr,
            f"{len(errors)} lines of errors": len(errors) != 1 and done.code in (2, 3),
            "taken for right": certain and done.code != 2,
            "wrote elsewhere": outside or not (here / "pipe").is_fifo(),
        }
        shutil.rmtree(top)
        return Outcome(line, done.code, ", ".join(name for name, there in faults.items() if there))


def _interrupt(number: int, frame: types.FrameType | None) -> None:
    """Do as Ctrl-C does, to a verb alone and not within an import: the half of a module would stay in this process."""
    within = False
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return
        within, frame = within or frame.f_code is _called.__code__, frame.f_back
    if within:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _for_a_moment(limit_s: float) -> Iterator[None]:
    """Interrupt what takes longer, and give back the handlers that verbs leave behind; warnings are only said."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGALRM, _interrupt)
    over, main = threading.Event(), threading.get_ident()

    def remind() -> None:
        while not over.wait(limit_s):
            # To this thread: another one may not be waiting for what blocks us.
            signal.pthread_kill(main, signal.SIGALRM)

    reminder = threading.Thread(target=remind)
    reminder.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        over.set()
        reminder.join()
        for number, handler in before.items():
            signal.signal(number, handler)
