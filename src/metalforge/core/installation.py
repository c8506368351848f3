"""What is installed: the commit a source tree was checked out at, and which optional parts of the package are here.

The commit is read from git's own files: nothing is run, and nothing can hang.
"""

import re
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path


def checked_out_commit(package: Path) -> str:
    """Return the commit of the source tree that a package is imported from; empty where that is no git checkout.

    The tree must be the package's own, ``ROOT/src/PACKAGE``: one that is installed inside of somebody's project is no
    part of that project's history. What was edited since the commit is not seen.
    """
    source = package.resolve().parent
    if source.name != "src":
        return ""
    try:
        git = _git_directory(source.parent / ".git")
        name = (git / "HEAD").read_text().strip()
        # A branch's name may lead to another one; a loop of them is a broken checkout.
        for _ in range(5):
            if not name.startswith("ref: "):
                return name if re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", name) else ""  # SHA-1 or SHA-256
            name = _resolved(git, name.removeprefix("ref: "))
    except (OSError, UnicodeDecodeError):
        pass
    return ""


def _git_directory(path: Path) -> Path:
    """Return git's directory; in a linked worktree `.git` is a file that says where it is."""
    if path.is_dir():
        return path
    return path.parent / path.read_text().strip().removeprefix("gitdir: ")


def _resolved(git: Path, reference: str) -> str:
    """Return what a reference holds: a commit or another reference; empty where there is none."""
    common = git / "commondir"
    shared = git / common.read_text().strip() if common.exists() else git
    for place in (git, shared):
        if (place / reference).is_file():
            return (place / reference).read_text().strip()
    packed = shared / "packed-refs"
    for line in packed.read_text().splitlines() if packed.exists() else ():
        commit, _, name = line.partition(" ")
        if name == reference:
            return commit
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
