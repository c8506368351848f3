"""The theory of the plasma for the commands: how runs are recorded, and transport heads trained and judged."""

from collections.abc import Iterable

from experiments.heads.theory import FittedHeads, HeadTheory, JudgedHeads
from metalforge.conductor.plasma.heads import HEADS, LAYOUT
from metalforge.core.schema import HeadLayout
from metalforge.reservoir.weights import EsnWeights

from .corpus import PlasmaCorpus, PlasmaEntry, PlasmaRecord
from .corpus_runs import record_plasma
from .grids import PLASMA_GRIDS, plasma_entries
from .report import evaluate_transport, transport_tables
from .training import heads_of, train_transport


def _entries(grid: str, seed: int, part: str) -> dict[str, list[PlasmaEntry]]:
    """Return the runs of a part of a grid by their kappa, those of few pairs first."""
    entries = list(plasma_entries(grid, seed=seed, part=part))
    kappas = sorted({entry.kappa for entry in entries}, reverse=True)
    return {f"kappa{kappa:g}": [entry for entry in entries if entry.kappa == kappa] for kappa in kappas}


def _corpus(grid: str, seed: int, runs: Iterable[PlasmaRecord]) -> PlasmaCorpus:
    return PlasmaCorpus(grid=grid, runs=tuple(runs))


def _train(corpus: PlasmaCorpus, layout: HeadLayout, seed: int) -> FittedHeads:
    """Fit the two transport heads."""
    train = corpus.part("train")
    trained = train_transport(train, seed=seed)
    fits = list(zip(HEADS, trained.fits, strict=True))
    return FittedHeads(
        trained.weights,
        [{"name": n, "ridge": f.ridge, "share": f.share, "runs": len(train), "noise": f.noise} for n, f in fits],
        (
            ("head", "ridge", "share of states", "runs", "off when left out"),
            [(n, f"{f.ridge:g}", f"{f.share:g}", str(len(train)), f"{f.noise:.4f}") for n, f in fits],
        ),
    )


def _judge(corpus: PlasmaCorpus, layout: HeadLayout, weights: EsnWeights | None, seed: int) -> JudgedHeads:
    heads = None if weights is None else heads_of(weights, corpus.part("train"))
    found = evaluate_transport(corpus, heads=heads, seed=seed)
    return JudgedHeads(found, transport_tables(found))


PLASMA = HeadTheory(
    title="Transport heads on held-out state points",
    kind=PlasmaCorpus,
    layouts=(LAYOUT,),
    grids=PLASMA_GRIDS,
    entries=_entries,
    record=lambda entries, engine, workers: record_plasma(entries, engine=engine, workers=workers),
    corpus=_corpus,
    label=lambda entry: f"Gamma {entry.gamma:g} at kappa {entry.kappa:g}",
    unit="atom_steps",
    work=lambda entry: entry.particles * entry.time / entry.spec.step_time,
    train=_train,
    judge=_judge,
)
