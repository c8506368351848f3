"""Heads that watch lattice chains, for the commands: trained and judged by docs/protocols/heads.md."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from metalforge.conductor.curves import transition_curve
from metalforge.conductor.features import ChainContext
from metalforge.conductor.scores import HeadScore, HeadScores, TestedKind
from metalforge.conductor.shipped import PEAK
from metalforge.core.errors import SpecError
from metalforge.core.pages import Paragraphs, TextTable
from metalforge.core.schema import HeadLayout
from metalforge.reservoir.weights import EsnWeights

from .corpus import GRIDS, Corpus, record
from .corpus import chain_entries as entries
from .corpus import corpus_of as corpus
from .evaluation import PeakScore, evaluate, peak_study
from .labels import Example, Labeller, context_of, examples, jittered
from .predictions import layout_of
from .training import reservoir, train_heads
from .transition_fit import LatticePeak, peaks_of

__all__ = ["GRIDS", "KIND", "TITLE", "UNIT", "corpus", "entries", "judge", "record", "train"]

TITLE, UNIT, KIND = "The conductor on held-out chains", "updates", Corpus
_notes = Paragraphs(Path(__file__).with_name("notes.toml"))


class HeadsEvaluation(HeadScores, frozen=True, kw_only=True):
    """What the heads of a layout are worth on held-out chains."""

    peak: tuple[PeakScore, ...] = ()
    unknown: tuple[str, ...] = ()
    """Couplings whose hot and cold chains do not agree: they have no equilibrium, and no labels of it."""
    test_seeds: tuple[int, ...] = ()
    """Of the random numbers of the test chains."""


class LabelledCorpus(NamedTuple):
    """Chains as examples, and what their labels were made from."""

    labeller: Labeller
    peaks: Sequence[LatticePeak]
    train: list[Example]
    test: list[Example]

    @classmethod
    def of(cls, corpus: Corpus) -> "LabelledCorpus":
        """Return the examples of a corpus; peaks are those of training chains."""
        if not corpus.part("train"):
            raise SpecError("heads are fitted to training chains. Got a corpus without any\nhint: --part train or all")
        peaks = peaks_of(corpus.part("train"))
        labeller = Labeller(corpus, {(peak.dims, 0.0): peak.beta for peak in peaks})
        return cls(labeller, peaks, examples(corpus, "train", labeller), examples(corpus, "test", labeller))

    @property
    def lessons(self) -> list[Example]:
        """What heads are fitted to: training chains, and the same with a transition that is off, for the peak."""
        plain = [replace(e, labels={k: v for k, v in e.labels.items() if k != PEAK}) for e in self.train]
        return [*plain, *jittered(self.train, unit=transition_curve().unit)]


def train(made: Corpus, layout: HeadLayout, seed: int) -> tuple[EsnWeights, list[dict[str, Any]]]:
    """Return weights with every head of a layout that has labels in the corpus, and how each was fitted."""
    weights, fits = train_heads(LabelledCorpus.of(made).lessons, weights=reservoir(seed), layout=layout)
    return weights, [{"name": name, **fit._asdict()} for name, fit in fits.items()]


def judge(
    made: Corpus, layout: HeadLayout, weights: EsnWeights | None, seed: int
) -> tuple[HeadsEvaluation, list[TextTable]]:
    """Return what a network is worth on test chains, and its tables; trained anew without weights."""
    if weights is not None:
        layout_of(weights)  # refused here, before the long part, where there are no heads
    chains = LabelledCorpus.of(made)
    lessons = chains.lessons
    if weights is None:
        weights, _ = train_heads(lessons, weights=reservoir(seed), layout=layout)
    scores, peak = peak_study(chains.train, chains.test, chains.peaks, layout, seed=seed)
    scores = [*evaluate(weights, lessons, chains.test), *scores]
    found = HeadsEvaluation(
        heads=tuple(scores),
        tested_on=_tested_on(chains.test, scores),
        peak=peak,
        unknown=chains.labeller.unknown_equilibria(),
        test_seeds=tuple(sorted({example.entry.seed for example in chains.test})),
    )
    return found, list(_tables(found, layout))


def _tested_on(test: Sequence[Example], heads: Sequence[HeadScore]) -> tuple[TestedKind, ...]:
    """Return the kinds of chains with the heads that were tested on them."""
    kinds = []
    for kind in kinds_tested([context_of(e.entry) for e in test if not e.entry.fault]):
        moves = "sweeps" if kind.algorithm == "heatbath" else "trajectories"
        names = {s.name for s in heads if s.of == moves and (kind.flavors or s.name != "cg_estimate")}
        kinds.append(msgspec.structs.replace(kind, heads=tuple(sorted(names))))
    return tuple(kinds)


def kinds_tested(chains: Iterable[ChainContext]) -> tuple[TestedKind, ...]:
    """Return the kinds that chains are of."""
    kinds: dict[tuple[Literal["heatbath", "hmc"], int], list[ChainContext]] = {}
    for chain in chains:
        kinds.setdefault((chain.algorithm, chain.flavors), []).append(chain)
    return tuple(
        TestedKind(
            algorithm=algorithm,
            flavors=flavors,
            n_t=tuple(sorted({c.dims[3] for c in alike})),
            aspect=(min(c.aspect for c in alike), max(c.aspect for c in alike)),
        )
        for (algorithm, flavors), alike in sorted(kinds.items())
    )


def _tables(found: HeadsEvaluation, layout: HeadLayout) -> Iterable[TextTable]:
    """Give all tables; heads of the layout that no chain has labels for are named as untested."""
    scored = {score.name for score in found.heads}
    untested = [name for name in layout.names if name not in scored]
    notes = _notes("heads.note", seeds=", ".join(map(str, found.test_seeds)))
    notes += _notes("heads.untested", names=", ".join(untested)) if untested else []
    notes += _notes("heads.unknown", names="; ".join(found.unknown)) if found.unknown else []
    yield TextTable.of("Heads", notes, [_head_row(score) for score in found.heads])
    if found.peak:
        rows = [
            {
                "N_t": str(p.n_t),
                "clusters": str(p.clusters),
                "head": f"{p.head:.4f}",
                "transition curve": f"{p.curve:.4f}",
                "two-loop scaling": f"{p.two_loop:.4f}",
            }
            for p in found.peak
        ]
        yield TextTable.of("The peak on an N_t that was left out", _notes("peak.note"), rows)


def _head_row(s: HeadScore) -> dict[str, str]:
    interval = "" if s.skill_low is None else f"{s.skill_low:+.2f} .. {s.skill_high:+.2f}"
    apart = [f"{x:+.2f}" if x is not None else "-" for x in (s.skill_hot, s.skill_cold)]
    return {
        "head": s.name,
        "on": s.of,
        "route": s.route,
        "metric": s.metric,
        "value": f"{s.value:.4g}",
        "95 % interval": f"{s.low:.4g} .. {s.high:.4g}",
        "strongest baseline": f"{s.baseline:.4g} ({s.baseline_name})",
        "skill": f"{s.skill:+.3f}",
        "of skill": interval,
        "hot, cold": ", ".join(apart),
        "clusters": str(s.clusters),
        "trusted": "yes" if s.trusted else "no",
    }
