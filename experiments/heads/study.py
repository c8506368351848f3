"""The evaluation of a network on a corpus: the steps of docs/protocols/heads.md in their order."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from metalforge.conductor.layouts import PEAK
from metalforge.conductor.scaling import transition_curve
from metalforge.conductor.scores import HeadScore, HeadsEvaluation, TestedKind
from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout

from .corpus_file import Corpus
from .early_stop import choose_factor, stop_study
from .evaluation import NeitherPhase, evaluate, neither_phase, peak_study
from .fault_gate import gate_study
from .labels import Example, Labeller, context_of, examples, jittered
from .routes import ROUTES, Route
from .training import Trained, reservoir, train_heads
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


class JudgedNetwork(NamedTuple):
    """What a network is worth, and what is shown beside it."""

    found: HeadsEvaluation
    neither: NeitherPhase | None


def judged(
    chains: LabelledCorpus,
    layout: HeadLayout,
    *,
    trained: Trained | None = None,
    seed: int = 1,
    routes: Sequence[Route] = ROUTES,
) -> JudgedNetwork:
    """Return what a network is worth on test chains; trained anew without one."""
    lessons = chains.lessons
    again = train_heads(lessons, weights=reservoir(seed), layout=layout)
    network = trained or again
    heads = evaluate(network, lessons, chains.test, routes=routes)
    peak = peak_study(chains.train, chains.test, chains.peaks, layout, seed=seed, routes=routes)
    heads += peak.scores if peak is not None else []
    factor = choose_factor(again, lessons)
    found = HeadsEvaluation(
        heads=tuple(heads),
        thermalisation_stop=stop_study(network, chains.test, chains.labeller, factor=factor),
        tested_on=_tested_on(chains.test, heads),
        peak=tuple(peak.apart) if peak is not None else (),
        peak_spread=tuple(peak.spread) if peak is not None else (),
        gate=gate_study(network, chains.train, chains.test),
        unknown=chains.labeller.unknown_equilibria(),
        test_seeds=tuple(sorted({example.chain.entry.seed for example in chains.test})),
    )
    return JudgedNetwork(found, neither_phase(network, lessons, chains.test))


def _tested_on(test: Sequence[Example], heads: Sequence[HeadScore]) -> tuple[TestedKind, ...]:
    """Return the kinds of chains with the heads that were tested on them."""
    kinds = []
    for kind in TestedKind.of([context_of(e.chain.entry) for e in test if not e.chain.entry.fault]):
        moves = "sweeps" if kind.algorithm == "heatbath" else "trajectories"
        names = {s.name for s in heads if s.of == moves and (kind.flavors or s.name != "cg_estimate")}
        kinds.append(msgspec.structs.replace(kind, heads=tuple(sorted(names))))
    return tuple(kinds)
