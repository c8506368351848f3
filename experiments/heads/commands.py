"""`python -m experiments heads corpus | transition | train | evaluate | early-stop`: chains, heads, scores."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metalforge.cli.output import MOST_SEED, Json, print_json, print_records, print_table, print_text
from metalforge.core.pages import TextTable, made_page

if TYPE_CHECKING:
    from metalforge.conductor.shipped import Provenance
    from metalforge.native.engine import Engine

    from .corpus_file import Corpus

app = typer.Typer(help="Train and judge heads that watch a chain.", no_args_is_help=True, rich_markup_mode=None)
Quick = Annotated[bool, typer.Option("--quick", help="A smaller corpus of the same kind, made in seconds.")]
CorpusFile = Annotated[Path, typer.Option("--corpus", help="A file of `heads corpus`, or a folder of such files.")]
TestFile = Annotated[
    Path | None, typer.Option("--test", help="Test chains from this file or folder, instead of the corpus's own.")
]
Seed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the reservoir.")]
Layout = Annotated[str, typer.Option(help="Head layout: conductor-11, gpu-prep-11, or plasma-2 for plasma runs.")]
PLASMA = "plasma-2"


class CorpusPart(StrEnum):
    """Which chains of a corpus."""

    train = "train"
    test = "test"
    all = "all"


Workers = Annotated[int | None, typer.Option(min=1, max=1024, help="Processes that run chains; all cores without.")]


@app.command()
def corpus(
    out: Annotated[Path, typer.Option(help="Where it goes: a .h5 file, or a folder with a file for each N_t.")],
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
    from experiments.plasma_heads.grids import PLASMA_GRIDS
    from metalforge.campaign.running.lanes import engine_here

    from .corpus_file import save_corpus
    from .corpus_grids import corpus_spec
    from .corpus_runs import make_corpus

    grid = "quick" if quick else grid
    engine = engine_here(substrate)
    if grid in PLASMA_GRIDS:
        _plasma_corpus(out, grid, part.value, engine, seed, _cores(workers), as_json)
        return
    spec = corpus_spec(grid, seed=seed)
    made = make_corpus(grid, spec, part=part.value, engine=engine, workers=_cores(workers), progress=_progress)
    files = {out: made}
    if out.suffix != ".h5":
        files = {out / f"{grid}-{part.value}-nt{n_t}.h5": some for n_t, some in made.by_extent().items()}
        out.mkdir(parents=True, exist_ok=True)
    for path, some in files.items():
        save_corpus(some, path)
    rows = [
        {
            "file": str(path),
            "sha256": some.sha256,
            "train": len(some.part("train")),
            "test": len(some.part("test")),
            "updates": sum(chain.entry.updates for chain in some.chains),
        }
        for path, some in files.items()
    ]
    summary = {"grid": grid, "seed": seed, "engine": engine.name, "files": rows}
    print_records(as_json, summary, f"Corpus {grid}", tuple(rows[0]), [tuple(map(str, r.values())) for r in rows])


def _plasma_corpus(out: Path, grid: str, part: str, engine: "Engine", seed: int, workers: int, as_json: bool) -> None:
    """Run the plasma of a grid: a file, or one for each kappa."""
    from experiments.plasma_heads.corpus import PlasmaCorpus, save_plasma
    from experiments.plasma_heads.grids import plasma_entries
    from experiments.plasma_heads.making import record_plasma

    entries = list(plasma_entries(grid, seed=seed, part=part))
    wanted = {out: entries}
    if out.suffix != ".h5":
        out.mkdir(parents=True, exist_ok=True)
        wanted = {
            out / f"{grid}-{part}-kappa{kappa:g}.h5": [entry for entry in entries if entry.kappa == kappa]
            for kappa in sorted({entry.kappa for entry in entries}, reverse=True)  # those of few pairs first
        }
    files: dict[Path, PlasmaCorpus] = {}
    done = 0
    for path, some_entries in wanted.items():
        runs = []
        for run in record_plasma(some_entries, engine=engine, workers=workers):
            runs.append(run)
            done += 1
            _progress(done, len(entries), f"Gamma {run.entry.gamma:g} at kappa {run.entry.kappa:g}")
        files[path] = PlasmaCorpus(grid=grid, runs=tuple(runs))
        save_plasma(files[path], path)
    rows = [
        {
            "file": str(path),
            "sha256": some.sha256,
            "train": len(some.part("train")),
            "test": len(some.part("test")),
            "atom_steps": sum(run.entry.particles * run.entry.time / run.entry.spec.step_time for run in some.runs),
        }
        for path, some in files.items()
    ]
    summary = {"grid": grid, "seed": seed, "engine": engine.name, "files": rows}
    lines = [(*map(str, list(row.values())[:-1]), f"{row['atom_steps']:.3g}") for row in rows]
    print_records(as_json, summary, f"Corpus {grid}", tuple(rows[0]), lines)


@app.command()
def transition(
    source: CorpusFile,
    out: Annotated[Path, typer.Option(help="Where the curve goes, as TOML.")],
    as_json: Json = False,
) -> None:
    """Fit where the transition is on any lattice to the peaks of a corpus's training chains."""
    from .corpus_file import load_corpus
    from .transition_fit import as_toml, fit_curve, peaks_of

    made = load_corpus(source)
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
    from metalforge.conductor.layouts import layout as find_layout
    from metalforge.conductor.shipped import save_with_provenance

    from .corpus_file import load_corpus
    from .study import labelled
    from .training import reservoir, train_heads

    wanted = find_layout(layout)
    if layout == PLASMA:
        _plasma_train(out, source, seed, as_json)
        return
    made = load_corpus(source)
    trained = train_heads(labelled(made).lessons, weights=reservoir(seed), layout=wanted)
    origin = _provenance(made, seed=seed, layout=layout)
    save_with_provenance(trained.weights, origin, out)
    rows = [{"name": name, **fit._asdict()} for name, fit in trained.fits.items()]
    if as_json:
        print_json({"file": str(out), "layout": layout, "seed": seed, "heads": rows, "provenance": origin})
        return
    lines = [
        (name, f"{fit.ridge:g}", str(fit.rows), f"{fit.error:.3f}", f"{fit.noise:.4g}")
        for name, fit in trained.fits.items()
    ]
    print_table(f"Heads of {layout}", ("head", "ridge", "rows", "error", "noise"), lines)
    missing = [name for name in wanted.names if name not in trained.fits]
    if missing:
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
    from metalforge.conductor.layouts import layout as find_layout
    from metalforge.reservoir.files import load_weights

    from .report import tables
    from .study import judged, labelled
    from .training import fitted_before

    wanted = find_layout(layout)
    if layout == PLASMA:
        _plasma_evaluate(source, test, weights, seed, table, as_json)
        return
    trained = None if weights is None else fitted_before(load_weights(weights))
    result = judged(labelled(_chains(source, test)), wanted, trained=trained, seed=seed)
    made_by = _command(corpus=source, test=test, weights=weights, seed=seed, layout=layout, table=table)
    _show("The conductor on held-out chains", tables(result, wanted), result.found, made_by, table, as_json)


def _plasma_train(out: Path, source: Path, seed: int, as_json: bool) -> None:
    """Fit the two transport heads to the training runs of a corpus."""
    from experiments.plasma_heads.corpus import load_plasma
    from experiments.plasma_heads.training import train_transport
    from metalforge.conductor.plasma.heads import HEADS
    from metalforge.conductor.shipped import Provenance, save_with_provenance

    made = load_plasma(source)
    train = made.part("train")
    trained = train_transport(train, seed=seed)
    command = (
        f"python -m experiments heads corpus --grid {made.grid} --out corpus; "
        f"python -m experiments heads train --corpus corpus --seed {seed} --layout {PLASMA}"
    )
    origin = Provenance(
        command=command, seed=seed, corpus_seed=min(run.entry.seed for run in train), corpus_sha256=made.sha256
    )
    save_with_provenance(trained.weights, origin, out)
    rows = [
        {"name": name, "ridge": fit.ridge, "share": fit.share, "runs": len(train), "noise": fit.noise}
        for name, fit in zip(HEADS, trained.fits, strict=True)
    ]
    summary = {"file": str(out), "layout": PLASMA, "seed": seed, "heads": rows, "provenance": origin}
    lines = [(str(r["name"]), f"{r['ridge']:g}", f"{r['share']:g}", str(r["runs"]), f"{r['noise']:.4f}") for r in rows]
    columns = ("head", "ridge", "share of states", "runs", "off when left out")
    print_records(as_json, summary, f"Heads of {PLASMA}", columns, lines)


def _plasma_evaluate(
    source: Path, test: Path | None, weights: Path | None, seed: int, table: Path | None, as_json: bool
) -> None:
    """Score the transport heads on the test runs of a corpus."""
    from experiments.plasma_heads.corpus import load_plasma
    from experiments.plasma_heads.report import evaluate_transport, transport_tables
    from experiments.plasma_heads.training import heads_of
    from metalforge.reservoir.files import load_weights

    made = load_plasma(source)
    made = made if test is None else made.tested_on(load_plasma(test))
    heads = None if weights is None else heads_of(load_weights(weights), made.part("train"))
    found = evaluate_transport(made, heads=heads, seed=seed)
    made_by = _command(corpus=source, test=test, weights=weights, seed=seed, layout=PLASMA, table=table)
    _show("Transport heads on held-out state points", transport_tables(found), found, made_by, table, as_json)


def _show(
    title: str, shown: Sequence[TextTable], found: object, made_by: str, table: Path | None, as_json: bool
) -> None:
    """Write tables as a page where one is wanted, and to stdout; there the record as JSON if that was asked for."""
    if table is not None:
        table.write_text(made_page(title, shown, made_by), encoding="utf-8")
    if as_json:
        print_json(found)
        return
    for one in shown:
        print_table(one.title, one.columns, one.rows)


@app.command("early-stop")
def early_stop(
    source: CorpusFile,
    test: TestFile = None,
    as_json: Json = False,
) -> None:
    """Judge how the shipped heads end warm-ups, on a corpus's test chains beside fixed lengths."""
    from metalforge.conductor.shipped import default_scores, default_weights

    from .report import stop_table
    from .stopping import stop_study
    from .study import labelled
    from .training import fitted_before

    chains = labelled(_chains(source, test))
    factor = default_scores().thermalisation_stop.factor
    found = stop_study(fitted_before(default_weights()), chains.test, chains.labeller, factor=factor)
    shown = stop_table(found)
    print_records(as_json, found, shown.title, shown.columns, shown.rows)
    if not as_json:
        print_text(shown.note)


def _chains(source: Path, test: Path | None) -> "Corpus":
    """Return a corpus, with test chains from elsewhere where they are to be."""
    from .corpus_file import load_corpus

    made = load_corpus(source)
    return made if test is None else made.tested_on(load_corpus(test))


def _command(**options: object) -> str:
    """Return the command that makes a table, with its options as they were given; those left out are left out."""
    given = {name: value for name, value in options.items() if value is not None}
    return " ".join(["python -m experiments heads evaluate", *(f"--{name} {value}" for name, value in given.items())])


def _provenance(made: "Corpus", *, seed: int, layout: str) -> "Provenance":
    """Return how weights were made, by commands that anyone can give: `corpus` stands for any folder."""
    from metalforge.conductor.shipped import Provenance

    chains = [f"python -m experiments heads corpus --grid {grid} --out corpus" for grid in made.grid.split("+")]
    command = "; ".join([*chains, f"python -m experiments heads train --corpus corpus --seed {seed} --layout {layout}"])
    first = min(chain.entry.seed for chain in made.chains)
    return Provenance(command=command, seed=seed, corpus_seed=first, corpus_sha256=made.sha256)


def _cores(workers: int | None) -> int:
    """Return the processes to use: as given, or the cores of the kernels' default."""
    from metalforge import native

    return workers or native.default_threads()


def _progress(done: int, total: int, what: str) -> None:
    if done % 10 == 0:
        sys.stderr.write(f"[{done}/{total}] {what}\n")
