"""What may stand in a script or a manifest: each check returns the text it was given, or says what was wanted.

Paths may have any printable characters and are quoted where they are used. Names go where no quoting is defined, as in
a line `#SBATCH`, so they have only characters that mean nothing anywhere.
"""

import re
from pathlib import Path

from metalforge.core import SpecError, escaped

_SLURM_TIMES = (
    r"(?P<minutes>\d+)(:(?P<seconds>[0-5]?\d))?",
    r"(?P<hours>\d+):(?P<minutes>[0-5]?\d):(?P<seconds>[0-5]?\d)",
    r"(?P<days>\d+)-(?P<hours>[01]?\d|2[0-3])(:(?P<minutes>[0-5]?\d)(:(?P<seconds>[0-5]?\d))?)?",
)
_SECONDS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


_WORDS = {
    "folder": (r"[\w.-]+(/[\w.-]+)*", "a folder on the disk, as in run or runs/one"),
    "host": (r"(\w[\w.-]*@)?\w[\w.-]*", "HOST or USER@HOST"),  # never an option of ssh
    "image": (r"[a-z0-9][\w./:@-]*", "the name of an image such as registry.example/metalforge:1.0"),
    "interface": (r"\w[\w.@-]{0,14}", "a network interface such as eth0 or ib0"),
    "key": (r"[A-Za-z0-9]([\w./-]{0,250}[A-Za-z0-9])?", "a key of letters, digits and ./_-"),
    # What Kubernetes, a folder and a shell take as it is.
    "name": ("[a-z]([a-z0-9-]{0,38}[a-z0-9])?", "a name of at most 40 letters a-z, digits and -"),
    "quantity": (r"\d+(\.\d+)?(m|[kMGTPE]|[KMGTPE]i)?", "a quantity such as 16Gi"),
    "value": (r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", "KEY=VALUE with a plain value"),
    "version": (r"\d+\.\d+\.\d+", "as in 2.60.0"),
    "word": (r"\w[\w.,:+@%&|*=/-]*", "a name without spaces and quotes"),  # of a partition, an account and the like
}
"""The form of each kind of word, and how a message describes it."""


def checked(kind: str, option: str, text: str) -> str:
    """Return a text that has the form of its kind of word."""
    pattern, wanted = _WORDS[kind]
    if not re.fullmatch(pattern, text, re.ASCII):
        raise SpecError(f"`{option}` must be {wanted}. Got `{escaped(text)}`")
    return text


def printable(option: str, text: str) -> str:
    """Return a text without line ends and other characters that a terminal or a parser would obey."""
    if not text or not text.isprintable():
        raise SpecError(f"`{option}` must have printable characters only. Got `{escaped(text)}`")
    return text


def path_text(option: str, path: Path) -> str:
    """Return a path as an argument that no command takes for an option."""
    text = printable(option, str(path))
    return f"./{text}" if text.startswith("-") else text


def campaign_words(spec: Path | None, preset: str | None) -> list[str]:
    """Return what `metalforge scan` is told to run: a spec or a preset."""
    if (spec is None) == (preset is None):
        raise SpecError("a spec or a preset is wanted, and not both\nhint: --spec spec.toml or --preset demo")
    return ["--preset", checked("word", "preset", str(preset))] if spec is None else [path_text("spec", spec)]


def slurm_seconds(option: str, text: str) -> int:
    """Return the seconds of a time as Slurm writes it: 90, 90:00, 12:00:00, 2-00, 2-12:00 or 2-12:00:00."""
    for form in _SLURM_TIMES:
        if found := re.fullmatch(form, text, re.ASCII):
            return sum(_SECONDS[part] * int(value or 0) for part, value in found.groupdict().items())
    raise SpecError(f"`{option}` must be HH:MM:SS, DAYS-HH:MM:SS or minutes. Got `{escaped(text)}`")
