r"""The lattice for the commands: how chains are recorded, and heads trained and judged by docs/protocols/heads.md."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from metalforge.conductor.layouts import PEAK
from metalforge.conductor.scaling import transition_curve
from metalforge.conductor.scores import HeadScore, TestedKind
from metalforge.core.errors import SpecError
from metalforge.core.pages import Paragraphs, TextTable
from metalforge.core.schema import HeadLayout
from metalforge.native.engine import Engine
from metalforge.reservoir.weights import EsnWeights

from .corpus import GRIDS, ChainEntry, ChainRecord, Corpus, corpus_spec, record
from .early_stop import choose_factor, stop_study
from .evaluation import NeitherPhase, evaluate, neither_phase, peak_study
from .fault_gate import gate_study
from .labels import Example, Labeller, context_of, examples, jittered
from .scores import FaultGate, HeadsEvaluation, StopStudy, kinds_tested, least_seen
from .training import fitted_before, reservoir, train_heads
from .transition_fit import LatticePeak, peaks_of

_notes = Paragraphs(Path(__file__).with_name("notes.toml"))


def tables(found: HeadsEvaluation, neither: NeitherPhase | None, layout: HeadLayout) -> list[TextTable]:
    """Return all tables; heads of the layout that no chain has labels for are named as untested."""
    untested = [name for name in layout.names if name not in {score.name for score in found.heads}]
    made = [_heads(found, untested)]
    made += [] if neither is None else [_neither(neither)]
    made += [_peak(found)] if found.peak else []
    made += [stop_table(found.thermalisation_stop)]
    return made if found.gate is None else [*made, _gate(found.gate)]


def _heads(found: HeadsEvaluation, untested: Sequence[str]) -> TextTable:
    notes = _notes("heads.note", seeds=", ".join(map(str, found.test_seeds)))
    notes += _notes("heads.untested", names=", ".join(untested)) if untested else []
    notes += _notes("heads.unknown", names="; ".join(found.unknown)) if found.unknown else []
    return TextTable.of("Heads", notes, [_head_row(score) for score in found.heads])


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


def _neither(found: NeitherPhase) -> TextTable:
    known = found.value is not None and found.baseline is not None
    row = {
        "head": found.name,
        "chains": str(found.chains),
        "accuracy": f"{found.value:.3f}" if known else "",
        "baseline": f"{found.baseline:.3f} ({found.baseline_name})" if known else "",
    }
    return TextTable.of("Chains of neither phase", _notes("neither.note"), [row])


def _peak(found: HeadsEvaluation) -> TextTable:
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
    spread = ", ".join(f"{s.error:.4f} up to {s.x:g}" for s in found.peak_spread)
    return TextTable.of("The peak on an N_t that was left out", _notes("peak.note", spread=spread), rows)


def stop_table(study: StopStudy) -> TextTable:
    """Return the early stop of warm-up: every rule with its length and what it leaves of the start."""
    notes = _notes("stop.note", study=study, seen=least_seen(1 / study.chains))
    rows = [
        {
            "rule": r.rule,
            "mean length": f"{r.length:.0f}",
            "premature": f"{r.premature:.3f}",
            "P, hot": str(r.plaquette_hot),
            "P, cold": str(r.plaquette_cold),
            "|L|, hot": str(r.polyakov_hot),
            "|L|, cold": str(r.polyakov_cold),
            "unbiased": "yes" if r.unbiased else "no",
        }
        for r in study.rules
    ]
    return TextTable.of("Early stop of warm-up", notes, rows)


def _gate(gate: FaultGate) -> TextTable:
    def delay(updates: float | None) -> str:
        return "-" if updates is None else f"{updates:.0f}"

    rows = [
        {
            "fault": f.fault,
            "chains": str(f.chains),
            "found by rules": f"{f.found_by_rules:.2f}",
            "delay": delay(f.delay_by_rules),
            "found with the head": f"{f.found_with_head:.2f}",
            "delay with the head": delay(f.delay_with_head),
        }
        for f in gate.faults
    ]
    rates = [1e5 * n / gate.updates for n in (gate.alarms_by_rules, gate.alarms_with_head)]
    return TextTable.of("Fault gate", _notes("gate.note", gate=gate, rules=rates[0], both=rates[1]), rows)


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
