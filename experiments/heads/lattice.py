"""The theory of the lattice for the commands: how chains are recorded, and heads trained and judged."""

from collections.abc import Iterable

import msgspec

from metalforge.core.schema import HeadLayout
from metalforge.reservoir.weights import EsnWeights

from .corpus_file import ChainEntry, ChainRecord, Corpus
from .corpus_grids import GRIDS, corpus_spec
from .corpus_runs import record
from .report import tables
from .study import judged, labelled
from .theory import FittedHeads, HeadTheory, JudgedHeads
from .training import fitted_before, reservoir, train_heads


def _entries(grid: str, seed: int, part: str) -> dict[str, list[ChainEntry]]:
    """Return the chains of a part of a grid by their N_t."""
    entries = list(corpus_spec(grid, seed=seed).entries(part))  # type: ignore[arg-type]
    extents = sorted({entry.dims[3] for entry in entries})
    return {f"nt{n_t}": [entry for entry in entries if entry.dims[3] == n_t] for n_t in extents}


def _corpus(grid: str, seed: int, chains: Iterable[ChainRecord]) -> Corpus:
    return Corpus(grid=grid, spec=msgspec.Raw(msgspec.json.encode(corpus_spec(grid, seed=seed))), chains=tuple(chains))


def _train(corpus: Corpus, layout: HeadLayout, seed: int) -> FittedHeads:
    """Fit every head of a layout that has labels in the corpus."""
    trained = train_heads(labelled(corpus).lessons, weights=reservoir(seed), layout=layout)
    lines = [
        (name, f"{fit.ridge:g}", str(fit.rows), f"{fit.error:.3f}", f"{fit.noise:.4g}")
        for name, fit in trained.fits.items()
    ]
    missing = ", ".join(name for name in layout.names if name not in trained.fits)
    return FittedHeads(
        trained.weights,
        [{"name": name, **fit._asdict()} for name, fit in trained.fits.items()],
        (("head", "ridge", "rows", "error", "noise"), lines),
        f"Without labels in this corpus, untrained: {missing}" if missing else "",
    )


def _judge(corpus: Corpus, layout: HeadLayout, weights: EsnWeights | None, seed: int) -> JudgedHeads:
    trained = None if weights is None else fitted_before(weights)
    result = judged(labelled(corpus), layout, trained=trained, seed=seed)
    return JudgedHeads(result.found, tables(result, layout))


LATTICE = HeadTheory(
    title="The conductor on held-out chains",
    kind=Corpus,
    layouts=("conductor-11", "gpu-prep-11"),
    grids=GRIDS,
    entries=_entries,
    record=lambda entries, engine, workers: record(entries, engine=engine, workers=workers),
    corpus=_corpus,
    label=lambda entry: f"beta {entry.beta:g} on {'x'.join(map(str, entry.dims))}",
    unit="updates",
    work=lambda entry: entry.updates,
    train=_train,
    judge=_judge,
)
