"""`python -m experiments heads corpus | transition | train | evaluate`: chains, heads, scores.

The theories are two modules with the same names: TITLE, UNIT (of an entry's `work`), KIND (of a corpus), GRIDS,
`entries`, `record` and `corpus`, which make a corpus, `train` and `judge`.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.corpora import PARTS
from experiments.markdown import made_page
from experiments.plasma_heads import study as plasma
from metalforge.campaign.running.lanes import engine_here
from metalforge.cli.output import MOST_SEED, Json, print_json, print_records, print_table, print_text
from metalforge.conductor.plasma import LAYOUT
from metalforge.conductor.shipped import Provenance, save_with_provenance
from metalforge.conductor.shipped import layout as find_layout
from metalforge.native import default_threads
from metalforge.reservoir.files import load_weights

from . import study as lattice
from .corpus import Corpus
from .transition_fit import as_toml, fit_curve, peaks_of

app = typer.Typer(help="Train and judge heads that watch a chain.", no_args_is_help=True, rich_markup_mode=None)
Quick = Annotated[bool, typer.Option("--quick", help="A smaller corpus of the same kind, made in seconds.")]
CorpusFile = Annotated[Path, typer.Option("--corpus", help="A file of `heads corpus`, or a folder of such files.")]
TestFile = Annotated[
    Path | None, typer.Option("--test", help="Test chains from this file or folder, instead of the corpus's own.")
]
Seed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the reservoir.")]
Layout = Annotated[str, typer.Option(help="Head layout: conductor-11, gpu-prep-11, or plasma-2 for plasma runs.")]
Workers = Annotated[int | None, typer.Option(min=1, max=1024, help="Processes that run chains; all cores without.")]


class CorpusPart(StrEnum):
    """Which chains of a corpus."""

    train = "train"
    test = "test"
    all = "all"


@app.command()
def corpus(
    out: Annotated[Path, typer.Option(help="A .h5 file, or a folder for one file per N_t or kappa.")],
    grid: Annotated[str, typer.Option(help="Which: heatbath, cores, quick, trajectories, plasma, ...")] = "cores",
    part: Annotated[CorpusPart, typer.Option(help="Chains that train, that test, or all.")] = CorpusPart.all,
    substrate: Annotated[str, typer.Option(help="Where they run: auto, cpu, cuda:0; links are the same.")] = "auto",
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED - 1, help="Of training chains; tests have the next.")
    ] = 2026,
    quick: Quick = False,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Run the chains that heads are trained and tested on; the same command gives the same checksums."""
    grid = "quick" if quick else grid
    engine = engine_here(substrate)
    theory: Any = plasma if grid in plasma.GRIDS else lattice
    wanted: dict[Path, list[Any]] = {}
    for entry in theory.entries(grid, seed, part.value):
        file = out if out.suffix == ".h5" else out / f"{grid}-{part.value}-{entry.file}.h5"
        wanted.setdefault(file, []).append(entry)
        file.parent.mkdir(parents=True, exist_ok=True)
    done, total = 0, sum(map(len, wanted.values()))
    rows: list[dict[str, Any]] = []
    for path, entries in wanted.items():
        records = []
        for one in theory.record(entries, engine=engine, workers=workers or default_threads()):
            records.append(one)
            done += 1
            if done % 10 == 0:
                sys.stderr.write(f"[{done}/{total}] {one.entry.label}\n")
        made = theory.corpus(grid, seed, records)
        made.save(path)
        counts: dict[str, int] = {of: len(made.part(of)) for of in PARTS}
        work = sum(entry.work for entry in entries)
        rows.append({"file": str(path), "sha256": made.sha256, **counts, theory.UNIT: work})
    summary = {"grid": grid, "seed": seed, "engine": engine.name, "files": rows}
    lines = [(*map(str, list(row.values())[:-1]), f"{row[theory.UNIT]:,.0f}") for row in rows]
    print_records(as_json, summary, f"Corpus {grid}", tuple(rows[0]), lines)


@app.command()
def transition(
    source: CorpusFile,
    out: Annotated[Path, typer.Option(help="Where the curve goes, as TOML.")],
    as_json: Json = False,
) -> None:
    """Fit where the transition is on any lattice to the peaks of a corpus's training chains."""
    made = Corpus.load(source)
    peaks = peaks_of(made.part("train"))
    seeds = sorted({chain.entry.seed for chain in made.part("train")})
    curve = fit_curve(peaks, f"training chains of the corpus {made.grid}, seed {', '.join(map(str, seeds))}")
    out.write_text(as_toml(curve, peaks), encoding="utf-8")
    rows = [("x".join(map(str, p.dims)), f"{p.beta:.5f}", f"{p.error:.5f}", f"{p.width:.4f}") for p in peaks]
    summary = {"file": str(out), "curve": curve, "peaks": [peak._asdict() for peak in peaks]}
    print_records(as_json, summary, "Peaks", ("lattice", "beta", "error", "half breadth"), rows)


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Where the weights go (safetensors), with how they were made.")],
    source: CorpusFile,
    seed: Seed = 1,
    layout: Layout = "conductor-11",
    as_json: Json = False,
) -> None:
    """Fit every head of a layout to the training chains of a corpus."""
    wanted = find_layout(layout)
    theory = _theory(layout)
    made = theory.KIND.load(source)
    fitted, fits = theory.train(made, wanted, seed)
    # Commands that anyone can give: `corpus` stands for any folder.
    commands = [f"corpus --grid {grid} --out corpus" for grid in made.grid.split("+")]
    commands.append(f"train --corpus corpus --seed {seed} --layout {layout}")
    origin = Provenance(
        command="; ".join(f"python -m experiments heads {command}" for command in commands),
        seed=seed,
        corpus_seed=min(record.entry.seed for record in made.records),
        corpus_sha256=made.sha256,
    )
    save_with_provenance(fitted, origin, out)
    summary = {"file": str(out), "layout": layout, "seed": seed, "heads": fits, "provenance": origin}
    lines = [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in fit.values()] for fit in fits]
    print_records(as_json, summary, f"Heads of {layout}", tuple(fits[0]) if fits else ("name",), lines)
    fit_to = {fit["name"] for fit in fits}
    missing = [name for name in wanted.names if name not in fit_to]
    if missing and not as_json:
        print_text(f"Without labels in this corpus, untrained: {', '.join(missing)}")


@app.command()
def evaluate(
    source: CorpusFile,
    test: TestFile = None,
    weights: Annotated[Path | None, typer.Option(help="Weights of `heads train`; trained anew without.")] = None,
    seed: Seed = 1,
    layout: Layout = "conductor-11",
    table: Annotated[Path | None, typer.Option(help="Where the tables go too, as Markdown.")] = None,
    as_json: Json = False,
) -> None:
    """Score every head on couplings and seeds it has not seen, against the strongest of its baselines."""
    wanted = find_layout(layout)
    theory = _theory(layout)
    made = theory.KIND.load(source)
    made = made if test is None else made.tested_on(theory.KIND.load(test))
    found, tables = theory.judge(made, wanted, None if weights is None else load_weights(weights), seed)
    if table is not None:
        options = {"corpus": source, "test": test, "weights": weights, "seed": seed, "layout": layout, "table": table}
        line = [f"--{name} {value}" for name, value in options.items() if value is not None]
        command = " ".join(["python -m experiments heads evaluate", *line])
        table.write_text(made_page(theory.TITLE, tables, command), encoding="utf-8")
    if as_json:
        print_json(found)
        return
    for one in tables:
        print_table(one.title, one.columns, one.rows)


def _theory(layout: str) -> Any:
    """Return the module of the theory that a layout's heads are of."""
    return plasma if layout == LAYOUT else lattice
