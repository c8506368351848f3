"""List and run the suites: `metalforge bench`, or `python -m benchmarks` from the root of the repository."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from metalforge import native
from metalforge.cli.guard import guarded
from metalforge.cli.output import Json, print_records
from metalforge.core import Measured, UnknownNameError

from .rows import BenchRow, find_suites


def bench(
    suite: Annotated[str | None, typer.Argument(help="A suite, or `all`; without it, the list of suites.")] = None,
    as_json: Json = False,
) -> None:
    """Compare speed with peers and ceilings measured in the same run; without SUITE, list the suites."""
    suites = find_suites(Path(__file__).parent)
    if suite is None:
        found = [{"suite": s.name, "files": [f.name for f in s.files]} for s in suites.values()]
        files = [(s.name, " ".join(f.name for f in s.files)) for s in suites.values()]
        print_records(as_json, found, "Suites", ("suite", "files"), files)
        return
    if suite != "all" and suite not in suites:
        raise UnknownNameError("benchmark suite", suite, [*suites, "all"])
    for chosen in suites.values() if suite == "all" else [suites[suite]]:
        rows = list(chosen.rows())
        record = {
            "suite": chosen.name,
            "isa": native.level(),
            "rows": [{"row": r, "ratio": r.ratio, "fraction": r.fraction} for r in rows],
        }
        columns = ("what", "measured", "peer", "x peer", "ceiling", "of ceiling")
        print_records(as_json, record, f"{chosen.name} (level {native.level()})", columns, [_cells(r) for r in rows])


def _cells(row: BenchRow) -> tuple[str, ...]:
    def rate(name: str, value: Measured | None) -> str:
        if value is None:
            return f"{name}: not installed here" if name else ""
        return f"{name} {value.value:.3g} {value.unit}"

    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    if row.interval:
        ratio += f" ({row.interval[0]:.2f} to {row.interval[1]:.2f})"
    return (
        row.name,
        f"{row.value.value:.3g} {row.value.unit}",
        rate(row.peer_name, row.peer),
        ratio,
        rate(row.ceiling_name, row.ceiling),
        f"{100 * row.fraction:.0f} %" if row.fraction is not None else "",
    )


if __name__ == "__main__":
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(bench)
    sys.exit(guarded(lambda: app(standalone_mode=False) or 0))
