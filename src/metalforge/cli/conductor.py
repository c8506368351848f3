"""`conductor corpus | train | evaluate`: chains to learn from, heads fitted to them, and what the heads are worth."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .machine import Json
from .output import print_json, print_table, print_text

if TYPE_CHECKING:
    from metalforge.conductor.chains import Corpus

__all__ = ["app"]

app = typer.Typer(help="Heads that watch a running chain.", no_args_is_help=True, rich_markup_mode=None)
Quick = Annotated[bool, typer.Option("--quick", help="A smaller corpus of the same kind, made in seconds.")]
CorpusFile = Annotated[Path | None, typer.Option("--corpus", help="A file of `conductor corpus`; made anew without.")]
Seed = Annotated[int, typer.Option(help="Seed of the reservoir.")]
Layout = Annotated[str, typer.Option(help="Head layout: conductor-11 or gpu-prep-11.")]


@app.command()
def corpus(
    out: Annotated[Path, typer.Option(help="Where the HDF5 file goes.")],
    quick: Quick = False,
    seed: Annotated[int, typer.Option(help="Seed of the chains.")] = 2026,
    as_json: Json = False,
) -> None:
    """Run the chains that heads are trained and tested on, and the long runs that label them."""
    from metalforge.conductor.chains import save_corpus
    from metalforge.conductor.labels import Labeller

    made = _corpus(None, quick, seed)
    save_corpus(made, out)
    labeller = Labeller(made)
    labels = [labeller.labels(chain) for chain in made.chains]
    summary = {
        "file": str(out),
        "chains": len(made.chains),
        "trajectories": sum(len(chain.series) for chain in made.chains),
        "train": len(made.part("train")),
        "test": len(made.part("test")),
        "faulty": sum(chain.entry.fault is not None for chain in made.chains),
        "thermalised": sum(label.length is not None for label in labels),
        "ambiguous": sum(label.ambiguous for label in labels),
        "without_equilibrium": list(labeller.unknown_equilibria()),
    }
    if as_json:
        print_json(summary)
    else:
        print_table("Corpus", ("what", "value"), [(name, str(value)) for name, value in summary.items()])


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Where the weights go (safetensors).")],
    source: CorpusFile = None,
    quick: Quick = False,
    seed: Seed = 1,
    layout: Layout = "conductor-11",
    as_json: Json = False,
) -> None:
    """Fit every head of a layout to the training chains of a corpus."""
    from metalforge.conductor.dataset import examples
    from metalforge.conductor.heads_training import reservoir, train_heads
    from metalforge.conductor.layouts import layout as find_layout
    from metalforge.reservoir.files import save_weights

    wanted = find_layout(layout)
    trained = train_heads(examples(_corpus(source, quick), "train"), weights=reservoir(seed), layout=wanted)
    save_weights(trained.weights, out)
    rows = [{"name": name, **fit._asdict()} for name, fit in trained.fits.items()]
    if as_json:
        print_json({"file": str(out), "layout": layout, "seed": seed, "heads": rows})
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
    source: CorpusFile = None,
    weights: Annotated[Path | None, typer.Option(help="Weights of `conductor train`; trained anew without.")] = None,
    quick: Quick = False,
    seed: Seed = 1,
    layout: Layout = "conductor-11",
    as_json: Json = False,
) -> None:
    """Score every head on couplings and seeds it has not seen, against the strongest of its baselines."""
    from metalforge.conductor.dataset import examples
    from metalforge.conductor.ensemble import train_ensemble
    from metalforge.conductor.evaluation import calibration, evaluate
    from metalforge.conductor.heads_training import fitted_before
    from metalforge.conductor.layouts import layout as find_layout
    from metalforge.conductor.stopping import stop_study
    from metalforge.reservoir.files import load_weights

    made = _corpus(source, quick)
    learn, held_out = examples(made, "train"), examples(made, "test")
    ensemble = train_ensemble(learn, members=3, seed=seed, layout=find_layout(layout))
    trained = ensemble.members[0] if weights is None else fitted_before(load_weights(weights))
    scores = evaluate(trained, learn, held_out)
    coverage = calibration(ensemble, held_out)
    stop = stop_study(trained, made, quick=quick)
    if as_json:
        print_json({"heads": scores, "thermalisation_stop": stop, "calibration": coverage})
        return
    lines = [
        (
            s.name,
            s.route,
            s.metric,
            f"{s.value:.4f}",
            f"{s.low:.4f} .. {s.high:.4f}",
            f"{s.baseline:.4f} ({s.baseline_name})",
            f"{s.skill:+.3f}",
            "yes" if s.trusted else "no",
        )
        for s in scores
    ]
    head = ("head", "route", "metric", "value", "95 % interval", "strongest baseline", "skill", "trusted")
    print_table("Heads on held-out couplings and seeds", head, lines)
    print_table(
        "Intervals of the ensemble",
        ("head", "within 68 %", "within 95 %", "chains"),
        [(c.name, f"{c.within_68:.2f}", f"{c.within_95:.2f}", str(c.chains)) for c in coverage],
    )
    print_table(
        "Early stop of warm-up",
        ("rule", "saved", "premature", "bias P", "bias |L|", "unbiased"),
        [
            (
                r.rule,
                f"{r.saved:.2f}",
                f"{r.premature:.2f}",
                f"{r.bias_plaquette:.2f}",
                f"{r.bias_polyakov:.2f}",
                "yes" if r.unbiased else "no",
            )
            for r in stop.rules
        ],
    )


def _corpus(path: Path | None, quick: bool, seed: int = 2026) -> "Corpus":
    """Return the corpus of a file, or a new one."""
    import msgspec

    from metalforge.conductor.chains import load_corpus
    from metalforge.conductor.corpus import QUICK_CORPUS, CorpusSpec, build_corpus

    if path is not None:
        return load_corpus(path)
    spec = msgspec.structs.replace(QUICK_CORPUS if quick else CorpusSpec(), seed=seed)
    return build_corpus(spec, _progress)


def _progress(done: int, total: int, what: str) -> None:
    if done % 10 == 0:
        sys.stderr.write(f"[{done + 1}/{total}] {what}\n")
