"""The plasma for the commands: how runs are recorded, and transport heads trained and judged."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from metalforge.conductor.plasma.heads import HEADS, LAYOUT
from metalforge.core.pages import TextTable
from metalforge.core.schema import HeadLayout
from metalforge.native.engine import Engine
from metalforge.reservoir.weights import EsnWeights

from .corpus import PLASMA_GRIDS, PlasmaCorpus, PlasmaEntry, PlasmaRecord, plasma_entries, record_plasma
from .evaluation import evaluate_transport, parts_of, transport_tables
from .scores import TransportEvaluation
from .training import heads_of, train_transport


class PlasmaHeads:
    """Heads that say the transport coefficients of a plasma."""

    title = "Transport heads on held-out state points"
    kind = PlasmaCorpus
    layouts = (LAYOUT,)
    grids = PLASMA_GRIDS
    unit = "atom_steps"

    def entries(self, grid: str, seed: int, part: str) -> list[PlasmaEntry]:
        """Return the runs of a part of a grid by their kappa, those of few pairs first."""
        return sorted(plasma_entries(grid, seed=seed, part=part), key=lambda entry: -entry.kappa)

    def file_of(self, entry: PlasmaEntry) -> str:
        """Return the end of the name of an entry's file."""
        return f"kappa{entry.kappa:g}"

    def label(self, entry: PlasmaEntry) -> str:
        """Return an entry in words."""
        return f"Gamma {entry.gamma:g} at kappa {entry.kappa:g}"

    def work(self, entry: PlasmaEntry) -> float:
        """Return the work of an entry, in `unit`."""
        return entry.particles * entry.time / entry.spec.step_time

    def record(self, entries: Sequence[PlasmaEntry], engine: Engine, workers: int) -> Iterator[PlasmaRecord]:
        """Run these; they come by kappa, size and time step."""
        return record_plasma(entries, engine=engine, workers=workers)

    def corpus(self, grid: str, seed: int, runs: Iterable[PlasmaRecord]) -> PlasmaCorpus:
        """Return records as a corpus."""
        return PlasmaCorpus(grid=grid, records=tuple(runs))

    def train(
        self, corpus: PlasmaCorpus, layout: HeadLayout, seed: int
    ) -> tuple[EsnWeights, list[dict[str, Any]], str]:
        """Return weights with the two transport heads, and how each was fitted."""
        train = corpus.part("train")
        trained = train_transport(train, seed=seed)
        fits = [
            {"name": name, "ridge": fit.ridge, "share": fit.share, "runs": len(train), "noise": fit.noise}
            for name, fit in zip(HEADS, trained.fits, strict=True)
        ]
        return trained.weights, fits, ""

    def judge(
        self, corpus: PlasmaCorpus, layout: HeadLayout, weights: EsnWeights | None, seed: int
    ) -> tuple[TransportEvaluation, list[TextTable]]:
        """Return what heads are worth on test runs, and their tables; trained anew without weights."""
        train, _ = parts_of(corpus)
        heads = train_transport(train, seed=seed) if weights is None else heads_of(weights, train)
        found = evaluate_transport(corpus, heads, seed=seed)
        return found, transport_tables(found)
