"""`bench`: lists and runs what the source tree's `benchmarks/` holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metalforge.core import UnknownNameError

from .output import Json, print_records

if TYPE_CHECKING:
    from metalforge.core import BenchRow, Measured, Suite


def bench(
    suite: Annotated[str | None, typer.Argument(help="A suite, or `all`; without it, the list of suites.")] = None,
    as_json: Json = False,
) -> None:
    """Compare speed with peers and ceilings measured in the same run; without SUITE, list the suites."""
    from metalforge.core import find_suites

    suites = find_suites(Path.cwd())
    if suite is None:
        found = [{"suite": s.name, "files": [f.name for f in s.files]} for s in suites.values()]
        rows = [(s.name, " ".join(f.name for f in s.files)) for s in suites.values()]
        print_records(as_json, found, "Suites", ("suite", "files"), rows)
        return
    if suite != "all" and suite not in suites:
        raise UnknownNameError("benchmark suite", suite, [*suites, "all"])
    for chosen in suites.values() if suite == "all" else [suites[suite]]:
        _run(chosen, as_json)


def _run(suite: "Suite", as_json: bool) -> None:
    from metalforge import native

    rows = list(suite.rows())
    found = [{"row": r, "ratio": r.ratio, "fraction": r.fraction} for r in rows]
    record = {"suite": suite.name, "isa": native.level(), "rows": found}
    columns = ("what", "measured", "peer", "x peer", "ceiling", "of ceiling")
    print_records(as_json, record, f"{suite.name} (level {native.level()})", columns, [_cells(r) for r in rows])


def _cells(row: "BenchRow") -> tuple[str, ...]:
    def rate(name: str, value: "Measured | None") -> str:
        if value is None:
            return f"{name}: not installed here" if name else ""
        return f"{name} {value.value:.3g} {value.unit}"

    return (
        row.name,
        f"{row.value.value:.3g} {row.value.unit}",
        rate(row.peer_name, row.peer),
        _ratio(row),
        rate(row.ceiling_name, row.ceiling),
        f"{100 * row.fraction:.0f} %" if row.fraction is not None else "",
    )


def _ratio(row: "BenchRow") -> str:
    if row.ratio is None:
        return ""
    return f"{row.ratio:.2f}" + (f" ({row.interval[0]:.2f} to {row.interval[1]:.2f})" if row.interval else "")
