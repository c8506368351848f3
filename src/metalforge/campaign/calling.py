"""Commands for a campaign that runs: one line of JSON to the socket in its directory, one line back.

::

    DIR/control.sock     there while it runs, for its owner alone (mode 0600)

The campaign stays the only writer: it checks what is asked, writes it in its journal with what it said, and acts at a
border. The socket is the kernel's, not the file system's: it is reached on the machine on which the campaign runs.
"""

import os
import shlex
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import ENAMETOOLONG, ENOENT
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import msgspec

from metalforge.core import MetalforgeError, SpecError

from .extending import Extension, couplings_of, system_of
from .store.directory import read_holder

SOCKET = "control.sock"
LONGEST_PATH = 100
"""Bytes that every system takes for the path of a socket; those of Linux end at 107."""
MOST_BYTES = 4096
"""Of a line."""
CONNECT_S, ANSWER_S = 5.0, 180.0
"""That a campaign has to take a call, and to answer it: an update may have to end first."""

What: TypeAlias = Literal["pause", "resume", "stop", "extend", "steerer", "system", "coupling", "remove", "rewire"]
Door: TypeAlias = Literal["python", "command line", "page"]
Screening: TypeAlias = Literal["before", "beside", "auto"]
FIELDS: Mapping[What, tuple[str, ...]] = {
    "pause": (),
    "resume": (),
    "stop": (),
    "extend": ("seconds", "trajectories", "target_error"),
    "steerer": ("name",),
    "system": ("system",),
    "coupling": ("at", "widen"),
    "remove": ("at",),
    "rewire": ("screen",),
}
"""The fields of each command; `extend` wants one at least, the others all but `OPTIONAL`."""
OPTIONAL = ("widen",)


class ControlError(MetalforgeError):
    """A campaign that takes no commands, or not from here."""


class Command(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line to a campaign: what it is to do, with its fields as text, and by which door it came."""

    what: What
    asked: dict[str, str] = {}
    through: Door = "python"

    def __post_init__(self) -> None:
        known = FIELDS[self.what]
        if unknown := [name for name in self.asked if name not in known]:
            wanted = f"`{self.what}` takes {', '.join(known) or 'nothing'}"
            raise SpecError(f"{wanted}. Got `{unknown[0]}`")
        missing = [name for name in known if name not in (*self.asked, *OPTIONAL)]
        if missing and (self.what != "extend" or len(missing) == len(known)):
            raise SpecError(f"`{self.what}` wants {' or '.join(missing)}")

    @property
    def extension(self) -> Extension:
        """What it asks for as `metalforge resume` does; raises where a field is not what it must be."""
        asked, what = self.asked, self.what
        if what == "extend":
            try:
                found = msgspec.convert(asked, Extension, strict=False)
            except msgspec.ValidationError as error:
                raise SpecError(f"`extend` wants numbers. Got {asked}: {error}") from None
            if any(getattr(found, name) is None for name in asked):  # `null` is no number, and would ask for nothing
                raise SpecError(f"`extend` wants numbers. Got {asked}")
            return found
        if what == "system":
            return Extension(systems=(system_of("system", asked["system"]),))
        if what == "coupling":
            return Extension(couplings=couplings_of("at", asked["at"]), widen=_flag(asked, "widen"))
        if what == "remove":
            return Extension(remove=couplings_of("at", asked["at"]))
        return Extension(steerer=asked["name"])

    @property
    def screen(self) -> Screening:
        """Where `rewire` wants the screen."""
        if (where := self.asked["screen"]) not in get_args(Screening):
            raise SpecError(f"`screen` must be {' or '.join(get_args(Screening))}. Got {where!r}")
        return where  # type: ignore[return-value]


class CommandAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the campaign said."""

    accepted: bool
    said: str


def _flag(asked: Mapping[str, str], name: str) -> bool:
    if (text := asked.get(name, "no")) not in ("yes", "no"):
        raise SpecError(f"`{name}` must be yes or no. Got {text!r}")
    return text == "yes"


def command(directory: Path | str, what: str, *, through: Door = "python", **asked: object) -> CommandAnswer:
    """Return what the campaign of a directory says to a command; raises where nobody listens.

    ``command("run", "extend", seconds=600)``, ``command("run", "system", system="12,12,12,4")``.
    """
    asked = {name: value if isinstance(value, str) else _text(value) for name, value in asked.items()}
    try:
        wanted = msgspec.convert({"what": what, "asked": asked, "through": through}, Command)
    except msgspec.ValidationError as error:
        raise SpecError(f"not a command: {error}") from error
    return send(Path(directory), wanted)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def send(directory: Path, wanted: Command, limit_s: float = ANSWER_S) -> CommandAnswer:
    """Return what a campaign says to a command that is whole."""
    line = msgspec.json.encode(wanted) + b"\n"
    if len(line) > MOST_BYTES:
        raise SpecError(f"a command has {MOST_BYTES} bytes at most. Got {len(line)}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_S)
        try:
            with address_in(directory) as address:
                connection.connect(address)
        except OSError as error:
            raise ControlError(_nobody(directory, wanted, error)) from error
        try:
            connection.sendall(line)
            said = received_line(connection, limit_s)
        except TimeoutError as error:
            raise ControlError(
                f"{directory}: no answer within {limit_s:g} s: it acts when the update that is under way is over, and "
                f"its journal will say\nhint: metalforge watch {directory}"
            ) from error
        except OSError as error:
            raise ControlError(f"{directory}: the campaign did not answer: {error}") from error
    try:
        return msgspec.json.decode(said, type=CommandAnswer)
    except msgspec.MsgspecError:
        raise ControlError(f"{directory}: the campaign ended before it answered") from None


def received_line(connection: socket.socket, limit_s: float) -> bytes:
    """Return what comes up to the end of a line, or of the connection; raises where it is late or too long."""
    deadline, line = time.monotonic() + limit_s, b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        part = connection.recv(MOST_BYTES)
        if not part:
            break
        line += part
        if len(line) > MOST_BYTES:
            raise OSError(f"a line has {MOST_BYTES} bytes at most")
    return line


@contextmanager
def address_in(directory: Path) -> Iterator[str]:
    """Give the address of the socket in a directory, for as long as it takes to bind or connect.

    Sockets have short paths: where the directory's is long, it is named by the number under which it is open here.
    """
    path = str(directory / SOCKET)
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield path
        return
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        here = f"/proc/self/fd/{opened}"
        if not os.path.exists(here):
            raise OSError(ENAMETOOLONG, f"a socket's path has {LONGEST_PATH} bytes at most on this system")
        yield f"{here}/{SOCKET}"
    finally:
        os.close(opened)


def _nobody(directory: Path, wanted: Command, error: OSError) -> str:
    """Return why nobody takes a command, and what would help."""
    holder, here = read_holder(directory), socket.gethostname()
    if isinstance(error, PermissionError):
        return f"{directory}: commands are for the owner of the campaign"
    if error.errno != ENOENT and holder is not None and holder.host != here:
        there = shlex.join(["metalforge", "control", str(directory.resolve()), wanted.what, *_options(wanted)])
        return (
            f"{directory}: the campaign listens on machine {holder.host}, and this is {here}"
            f"\nhint: ssh {holder.host} {there}"
        )
    return (
        f"{directory}: no campaign runs there, which alone takes commands"
        f"\nhint: metalforge resume {directory} goes on with one that was stopped or killed"
    )


def _options(wanted: Command) -> list[str]:
    """Return the fields of a command as `metalforge control` takes them: options of a budget, a flag, or a value."""
    if wanted.what == "extend":
        return [word for name, text in wanted.asked.items() for word in (f"--{name.replace('_', '-')}", text)]
    flags = [f"--{name}" for name in OPTIONAL if wanted.asked.get(name) == "yes"]
    return [text for name, text in wanted.asked.items() if name not in OPTIONAL] + flags
