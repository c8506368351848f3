"""The optional parts of the package: which are installed, and the command that adds one."""

import re
from importlib.metadata import PackageNotFoundError, distribution, requires

__all__ = ["extras"]


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
