"""What a cluster needs on this machine, and what is missing with the command that adds it."""

import os
import re
import stat
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from metalforge.core import PluginError, SpecError

LEAST_RAY = (2, 52)
"""The first with tokens: an older one ignores RAY_AUTH_MODE and lets everybody in."""
_ADD = {
    "ray": ("campaigns on a cluster", "pip install 'metalforge[ray]'"),
    "grpcio": ("addresses ray://HOST:PORT", "pip install 'ray[client]'"),
    "fsspec": ("checkpoints in object stores", "pip install 'metalforge[ray]'"),
}


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """A package, what it is for, and the version that is here or what to do."""

    package: str
    purpose: str
    version: str | None
    remedy: str = ""

    @property
    def state(self) -> str:
        """Return one line for a table."""
        if self.version is None:
            return f"not installed; add with: {self.remedy}"
        return self.version if not self.remedy else f"{self.version} is too old; add with: {self.remedy}"


def cluster_requirements() -> list[Requirement]:
    """Return the packages that campaigns on a cluster use, those that are missing included; nothing is imported."""
    found = []
    for package, (purpose, remedy) in _ADD.items():
        here = None
        with suppress(PackageNotFoundError):
            here = version(package)
        good = here is not None and (package != "ray" or numbers(here) >= LEAST_RAY)
        found.append(Requirement(package=package, purpose=purpose, version=here, remedy="" if good else remedy))
    return found


def numbers(text: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def check_node() -> str:
    """Return in one line what Ray is here; raise where this node must not join a cluster.

    Ray is missing or too old to know tokens, or the token is not in a file that only its owner may read.
    """
    ray, client, _ = cluster_requirements()
    if ray.version is None or ray.remedy:
        raise PluginError(f"a cluster needs Ray {'.'.join(map(str, LEAST_RAY))} or newer: {ray.state}")
    if os.environ.get("RAY_AUTH_MODE") != "token":
        raise SpecError("RAY_AUTH_MODE must be token. A cluster without it runs whatever anybody sends to its ports")
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "")
    if not path.is_file():
        raise SpecError(f"RAY_AUTH_TOKEN_PATH must be the file of the token. Got `{path}`")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise SpecError(f"{path}: the token must be its owner's alone. Got mode {mode:04o}\nhint: chmod 600 {path}")
    return f"Ray {ray.version}, token" + (", client" if client.version else "")
