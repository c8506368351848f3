"""The lattice for the commands: how chains are recorded, and heads trained and judged by docs/protocols/heads.md."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from metalforge.conductor.layouts import PEAK
from metalforge.conductor.scaling import transition_curve
from metalforge.conductor.scores import HeadScore, TestedKind
from metalforge.core.errors import SpecError
from metalforge.core.pages import TextTable
from metalforge.core.schema import HeadLayout
from metalforge.native.engine import Engine
from metalforge.reservoir.weights import EsnWeights

from .corpus_file import ChainEntry, ChainRecord, Corpus
from .corpus_grids import GRIDS, corpus_spec
from .corpus_runs import record
from .early_stop import choose_factor, stop_study
from .evaluation import evaluate, neither_phase, peak_study
from .fault_gate import gate_study
from .labels import Example, Labeller, context_of, examples, jittered
from .report import tables
from .scores import HeadsEvaluation, kinds_tested
from .training import fitted_before, reservoir, train_heads
from .transition_fit import LatticePeak, peaks_of


class LabelledCorpus(NamedTuple):
    """Chains as examples, and what their labels were made from."""

    labeller: Labeller
    peaks: Sequence[LatticePeak]
    train: list[Example]
    test: list[Example]

    @property
    def lessons(self) -> list[Example]:
        """What heads are fitted to: training chains, and the same with a transition that is off, for the peak."""
        sound = [example for example in self.train if not example.chain.entry.fault]
        plain = [replace(e, labels={k: v for k, v in e.labels.items() if k != PEAK}) for e in self.train]
        return [*plain, *jittered(sound, unit=transition_curve().unit)]


def labelled(corpus: Corpus) -> LabelledCorpus:
    """Return the examples of a corpus; peaks are those of training chains."""
    if not corpus.part("train"):
        raise SpecError("heads are fitted to training chains. Got a corpus without any\nhint: --part train or all")
    peaks = peaks_of(corpus.part("train"))
    labeller = Labeller(corpus, {(peak.dims, 0.0): peak.beta for peak in peaks})
    return LabelledCorpus(labeller, peaks, examples(corpus, "train", labeller), examples(corpus, "test", labeller))


class LatticeHeads:
    """Heads that watch lattice chains."""

    title = "The conductor on held-out chains"
    kind = Corpus
    layouts = ("conductor-11", "gpu-prep-11")
    grids = GRIDS
    unit = "updates"

    def entries(self, grid: str, seed: int, part: str) -> list[ChainEntry]:
        """Return the chains of a part of a grid, by their N_t."""
        return sorted(corpus_spec(grid, seed=seed).entries(part), key=lambda entry: entry.dims[3])

    def file_of(self, entry: ChainEntry) -> str:
        """Return the end of the name of an entry's file."""
        return f"nt{entry.dims[3]}"

    def label(self, entry: ChainEntry) -> str:
        """Return an entry in words."""
        return f"beta {entry.beta:g} on {'x'.join(map(str, entry.dims))}"

    def work(self, entry: ChainEntry) -> float:
        """Return the work of an entry, in `unit`."""
        return entry.updates

    def record(self, entries: Sequence[ChainEntry], engine: Engine, workers: int) -> Iterator[ChainRecord]:
        """Run these chains, in their order."""
        return record(entries, engine=engine, workers=workers)

    def corpus(self, grid: str, seed: int, chains: Iterable[ChainRecord]) -> Corpus:
        """Return records as a corpus."""
        spec = msgspec.Raw(msgspec.json.encode(corpus_spec(grid, seed=seed)))
        return Corpus(grid=grid, spec=spec, records=tuple(chains))

    def train(self, corpus: Corpus, layout: HeadLayout, seed: int) -> tuple[EsnWeights, list[dict[str, Any]], str]:
        """Return weights with every head of a layout that has labels in the corpus, the fits, and a note on others."""
        trained = train_heads(labelled(corpus).lessons, weights=reservoir(seed), layout=layout)
        missing = ", ".join(name for name in layout.names if name not in trained.fits)
        fits = [{"name": name, **fit._asdict()} for name, fit in trained.fits.items()]
        return trained.weights, fits, f"Without labels in this corpus, untrained: {missing}" if missing else ""

    def judge(
        self, corpus: Corpus, layout: HeadLayout, weights: EsnWeights | None, seed: int
    ) -> tuple[HeadsEvaluation, list[TextTable]]:
        """Return what a network is worth on test chains, and its tables; trained anew without weights."""
        chains = labelled(corpus)
        lessons = chains.lessons
        again = train_heads(lessons, weights=reservoir(seed), layout=layout)
        network = again if weights is None else fitted_before(weights)
        heads = evaluate(network, lessons, chains.test)
        peak = peak_study(chains.train, chains.test, chains.peaks, layout, seed=seed)
        heads += peak.scores if peak is not None else []
        found = HeadsEvaluation(
            heads=tuple(heads),
            thermalisation_stop=stop_study(network, chains.test, chains.labeller, factor=choose_factor(again, lessons)),
            tested_on=_tested_on(chains.test, heads),
            peak=tuple(peak.apart) if peak is not None else (),
            peak_spread=tuple(peak.spread) if peak is not None else (),
            gate=gate_study(network, chains.train, chains.test),
            unknown=chains.labeller.unknown_equilibria(),
            test_seeds=tuple(sorted({example.chain.entry.seed for example in chains.test})),
        )
        return found, tables(found, neither_phase(network, lessons, chains.test), layout)


def _tested_on(test: Sequence[Example], heads: Sequence[HeadScore]) -> tuple[TestedKind, ...]:
    """Return the kinds of chains with the heads that were tested on them."""
    kinds = []
    for kind in kinds_tested([context_of(e.chain.entry) for e in test if not e.chain.entry.fault]):
        moves = "sweeps" if kind.algorithm == "heatbath" else "trajectories"
        names = {s.name for s in heads if s.of == moves and (kind.flavors or s.name != "cg_estimate")}
        kinds.append(msgspec.structs.replace(kind, heads=tuple(sorted(names))))
    return tuple(kinds)
