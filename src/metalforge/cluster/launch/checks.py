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


def matching(option: str, text: str, pattern: str, wanted: str) -> str:
    """Return a text that has this form."""
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


def slurm_word(option: str, text: str) -> str:
    """Return the name of a partition, an account, a constraint or the like."""
    return matching(option, text, r"\w[\w.,:+@%&|*=/-]*", "a name without spaces and quotes")


def campaign_words(spec: Path | None, preset: str | None) -> list[str]:
    """Return what `metalforge scan` is told to run: a spec or a preset."""
    if (spec is None) == (preset is None):
        raise SpecError("a spec or a preset is wanted, and not both\nhint: --spec spec.toml or --preset demo")
    return ["--preset", slurm_word("preset", str(preset))] if spec is None else [path_text("spec", spec)]


def object_name(option: str, text: str) -> str:
    """Return a name that Kubernetes, a folder and a shell take as it is."""
    return matching(option, text, "[a-z]([a-z0-9-]{0,38}[a-z0-9])?", "a name of at most 40 letters a-z, digits and -")


def host_name(option: str, text: str) -> str:
    """Return a host as ssh takes it: a name, an address or USER@HOST; never an option of ssh."""
    return matching(option, text, r"(\w[\w.-]*@)?\w[\w.-]*", "HOST or USER@HOST")


def interface_name(option: str, text: str) -> str:
    """Return the name of a network interface, as in `ib0`."""
    return matching(option, text, r"\w[\w.@-]{0,14}", "a network interface such as eth0 or ib0")


def slurm_seconds(option: str, text: str) -> int:
    """Return the seconds of a time as Slurm writes it: 90, 90:00, 12:00:00, 2-00, 2-12:00 or 2-12:00:00."""
    for form in _SLURM_TIMES:
        if found := re.fullmatch(form, text, re.ASCII):
            return sum(_SECONDS[part] * int(value or 0) for part, value in found.groupdict().items())
    raise SpecError(f"`{option}` must be HH:MM:SS, DAYS-HH:MM:SS or minutes. Got `{escaped(text)}`")
