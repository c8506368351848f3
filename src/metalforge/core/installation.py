"""What is installed: the commit a source tree was checked out at, and which optional parts of the package are here."""

import re
import subprocess
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path


def checked_out_commit(package: Path) -> str:
    """Return the commit of the source tree that a package is imported from; empty where that is no git checkout.

    The tree must be the package's own, ``ROOT/src/PACKAGE``: one that is installed inside of somebody's project is no
    part of that project's history. What was edited since the commit is not seen.
    """
    source = package.resolve().parent
    if source.name != "src" or not (source.parent / ".git").exists():
        return ""
    # The folder by its name: where GIT_DIR is set, as in a hook, git would look at another repository.
    asked = ["git", f"--git-dir={source.parent / '.git'}", "rev-parse", "--verify", "--quiet", "HEAD"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def extras() -> dict[str, str]:
    """Return each extra with ``installed``, or what is missing and the command that adds it."""
    needs: dict[str, list[str]] = {}
    for requirement in requires("metalforge") or []:
        match = re.fullmatch(r"([A-Za-z0-9._-]+)[^;]*;.*extra\s*==\s*['\"]([\w-]+)['\"].*", requirement)
        if match:
            needs.setdefault(match[2], []).append(match[1])
    return {name: _state(name, packages) for name, packages in sorted(needs.items())}


def _state(extra: str, packages: list[str]) -> str:
    absent = []
    for package in packages:
        try:
            distribution(package)
        except PackageNotFoundError:
            absent.append(package)
    if not absent:
        return "installed"
    return f"not installed: {', '.join(absent)} missing; add with: pip install 'metalforge[{extra}]'"
