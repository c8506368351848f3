"""Experiment 020: the six places in a run where a network may speak, each by what it saves, costs and knows.

On chains of the conductor's corpus whose couplings and seeds no head was trained on (`WarmUps` says how warm-ups are
judged; a standard chain has 50 trajectories of warm-up and 100 of measurement, as the published design's had):

- A: the thermalisation head ends warm-ups, after a multiple of the trajectories it took to be sure; the multiple is
  chosen on training chains (`choose_factor`). Beside it MSER, and the control that waits for nothing.
- B: the rejection head speaks at a quarter of a trajectory. In warm-up a trajectory that it is sure of is broken off:
  a true rejection saves three quarters of its steps, a wrong one costs the quarter that was run. In measurement it is
  written down and nothing else: acting on it would make the chain inexact.
- C: the phase head speaks after a trajectory. It saves nothing.
- D: steering between couplings: trajectories for the same error on beta_c over those of an even scan, for two ranges
  (`placement_rules.steer`).
- E: the length of the warm-up is read off before the run, from the coupling, the lattice and the start, by a head that
  saw first frames only; so many trajectories are added that training chains end too early as often as with the
  standard length.
- F: A, at most as long as E says, at the couplings of D.

All savings are at the same length of measurement, so at the same final error as far as nothing is left of the start.
The standard length leaves something of it, too: a bias that a rule adds is added to that of the standard, which is
given and checked by itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from experiments.heads.corpus_file import Corpus, load_corpus, save_corpus
from experiments.heads.corpus_grids import corpus_spec
from experiments.heads.corpus_runs import make_corpus
from experiments.heads.evaluation import evaluate
from experiments.heads.labels import Example, Labeller, examples
from experiments.heads.predicting import values_of
from experiments.heads.training import Trained, label_rows, reservoir, train_heads
from metalforge.conductor.early_stop import first_sure
from metalforge.conductor.layouts import GPU_PREP_11, on_trajectories
from metalforge.conductor.scores import HeadScore
from metalforge.core.arrays import Doubles
from metalforge.core.schema import HeadLayout
from metalforge.reservoir.metrics import Interval

from .cache import cached
from .placement_rules import RANGES, Judged, Steered, WarmUps, bootstrap, mser_start, offset_for, pooled_mean, steer
from .protocol import Check, Progress, Result, ResultRow, Settings, experiment, row_of, shown, words


class MidRun(NamedTuple):
    """The rejection head at a quarter of a trajectory: its accuracy, that of always saying the same, what it saves.

    `saved` is the share of warm-up steps saved when it may break trajectories off, less what wrong breaks cost.
    """

    accuracy: Interval
    majority: float
    saved: Interval
    broken_wrongly: Interval


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Findings:
    """Every figure of the experiment."""

    chains: int
    standard: int
    measured: int
    factor: float
    judged: Mapping[str, Judged]
    mid_run: MidRun
    scores: Mapping[str, HeadScore]
    length_score: HeadScore
    equal_premature: Interval
    steered: tuple[Steered, ...]
    """By range."""

    @property
    def whole(self) -> int:
        """Trajectories of a standard chain."""
        return self.standard + self.measured

    def of_all(self, saved: Interval) -> Interval:
        """Return saved trajectories as a share of a standard chain."""
        return saved.times(1 / self.whole)

    @property
    def saved_mid_run(self) -> Interval:
        """Steps of warm-up saved at a quarter of trajectories, as a share of a standard chain's."""
        return self.mid_run.saved.times(self.standard / self.whole)

    def saved_together(self, steered: Steered) -> Interval:
        """Return 1 - (trajectories of steering over an even scan) (what A and E leave of a chain), ends with ends."""
        chain, ratio = self.of_all(self.judged["head and predicted"].saved), steered.ratio
        return Interval(
            1 - ratio.value * (1 - chain.value), 1 - ratio.high * (1 - chain.low), 1 - ratio.low * (1 - chain.high)
        )


def lines(found: Findings) -> tuple[tuple[str, ...], ...]:
    """Return the table: one line per placement, ours beside the published design's."""
    warm, rejection, phase = (found.scores.get(name) for name in (WARM, REJECT, PHASE))
    head, predicted, both = (found.judged[name] for name in ("head", "predicted", "head and predicted"))
    length = found.length_score
    usual_stop = f"{_baseline(warm)}; MSER saves {_percent(found.of_all(found.judged['MSER'].saved))}"
    by_range = {s.range: (_percent(s.saved), _percent(found.saved_together(s))) for s in found.steered}
    scans, whole = (
        "; ".join(f"{cell[k]} of {low:g} .. {high:g}" for (low, high), cell in by_range.items()) for k in (0, 1)
    )
    rejected = f"{_percent(found.mid_run.accuracy)}" + ("" if rejection is None else f"; {_score(rejection)}")
    usual = f"{found.mid_run.majority:.1%} (always the same answer)"
    usual += "" if rejection is None else f"; Brier {rejection.baseline:.3f} ({rejection.baseline_name})"
    priority = found.scores.get("beta_priority")
    none = "0, by construction"

    def stops(judged: Judged) -> tuple[str, ...]:
        return _percent(found.of_all(judged.saved)), _percent(judged.premature), _two(judged)

    rows = {
        "A": (_score(warm), usual_stop, *stops(head)),
        "B": (rejected, usual, f"{_percent(found.saved_mid_run)}, of steps, in warm-up only", "", none),
        "C": (_score(phase), _baseline(phase), "0", "", none),
        "D": (_score(priority), _baseline(priority), scans, "", "0: chains stay exact"),
        "E": (_score(length), _baseline(length), *stops(predicted)),
        "F": ("", "", whole, *stops(both)[1:]),
    }
    columns = words("020.columns", standard=found.judged["standard"].left)
    published = {name: words(f"020.published_{name}") for name in rows}
    return (tuple(columns), *((name, *published[name][:2], *row, published[name][2]) for name, row in rows.items()))


def _words(found: Findings) -> Iterator[str]:
    """Give what the table does not say."""
    head, mser, fixed, control = (found.judged[name] for name in ("head", "MSER", "standard", "control"))
    biased = "is itself biased" if fixed.left.low > 0 else "is not seen to be biased"
    yield from words("020.warmups", found=found, head=head, mser=mser, fixed=fixed, control=control, biased=biased)
    for steered in found.steered:
        yield from words("020.scan", s=steered)
    priority = found.scores.get("beta_priority")
    yield from words("020.end", found=found, trusted="is" if priority and priority.trusted else "is not")


def _percent(figure: Interval) -> str:
    return shown(figure, ".1%")


def _two(judged: Judged) -> str:
    return shown(judged.added, "+.2f")


def _score(score: HeadScore | None) -> str:
    if score is None:
        return "no label in this corpus"
    if score.metric == "accuracy":
        return shown(score, ".1%")
    return f"{'Brier' if score.metric == 'brier' else score.metric} {shown(score, '.3g')}"


def _baseline(score: HeadScore | None) -> str:
    if score is None:
        return ""
    value = f"{score.baseline:.1%}" if score.metric == "accuracy" else f"{score.baseline:.3g}"
    return f"{value} ({score.baseline_name})"


SURE_OF_REJECTION = 0.9
"""Probability from which a trajectory of warm-up is broken off."""
SEEN_AT = 0.25
"""The part of a trajectory after which the rejection head speaks."""
WARM, REJECT, PHASE, HEAD = "therm_detect", "reject_predict", "phase_on_trajectories", "warmup_length"
HEADS = HeadLayout(
    name="placements",
    heads=(GPU_PREP_11[WARM], GPU_PREP_11[REJECT], on_trajectories(GPU_PREP_11["phase_classify"], PHASE)),
)
LENGTH = HeadLayout(name="warm-up length", heads=(on_trajectories(GPU_PREP_11["quenched_length"], HEAD),))
ALLOWED = 0.3
"""Bias, in errors of a measurement, below which an early start is called harmless."""
CONTROL = 3
"""The trajectory at which the control starts measuring: it must be seen to be biased."""


FACTORS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
PREMATURE, IN_A_ROW = 0.01, 10
"""Share of training chains that may stop before their label, and trajectories for which the head must be sure."""


def corpus_of(grid: str) -> Corpus:
    """Return the corpus of a grid, from the cache if it was made before."""
    spec = corpus_spec(grid)
    return cached("conductor-corpus-*.h5", spec, lambda: make_corpus(grid, spec), load_corpus, save_corpus)


def choose_factor(trained: Trained, chains: Sequence[Example]) -> float:
    """Return the least factor with which few enough training chains stop before their label, by heads left out."""
    left_out = trained.left_out[WARM]
    ends = {i: length for i in np.unique(left_out.chain).tolist() if (length := chains[i].length) is not None}
    first = np.array([first_sure(left_out.said[left_out.chain == i], in_a_row=IN_A_ROW) for i in ends])
    wanted = np.array(list(ends.values()))
    return next((f for f in FACTORS if len(wanted) and np.mean(f * first < wanted) <= PREMATURE), FACTORS[-1])


@experiment("020", "What does a network save at each of six places in a run, and at what cost?")
def run(settings: Settings, progress: Progress) -> Result:
    """Return every placement's figures; references are the standard warm-up, the baselines and the even scan."""
    steps = ("chains", "heads", "warm-ups", "baselines", "steering")

    def begin(what: str) -> None:
        progress(steps.index(what), len(steps), what)

    begin("chains")
    corpus = corpus_of("quick-trajectories" if settings.quick else "trajectories")
    labeller = Labeller(corpus)
    train, test = examples(corpus, "train", labeller), examples(corpus, "test", labeller)
    begin("heads")
    trained = train_heads(train, weights=reservoir(settings.seed), layout=HEADS)
    begin("warm-ups")
    warmups = WarmUps.of(test, labeller)
    factor, standard = choose_factor(trained, train), warmups.standard

    def until_sure(example: Example) -> float:
        said = values_of(trained, example.inputs)[WARM]
        return min(factor * first_sure(said, in_a_row=IN_A_ROW), standard)

    sure = warmups.starts(until_sure)
    lengths, predicted = predicted_lengths(WarmUps.of(train, labeller), warmups, settings.seed)
    starts = {
        "head": sure,
        "MSER": warmups.starts(lambda e: min(mser_start(e), standard)),
        "control": warmups.starts(lambda e: CONTROL),
        "standard": warmups.starts(lambda e: standard),
        "predicted": warmups.at(lengths),
    }
    starts["head and predicted"] = np.minimum(sure, starts["predicted"])
    judged = {name: warmups.judge(where) for name, where in starts.items()}
    begin("baselines")
    scores = {score.name: score for score in evaluate(trained, train, test, routes=("f32-software",))}
    begin("steering")
    found = Findings(
        chains=len(warmups.chains),
        standard=standard,
        measured=warmups.measured,
        factor=factor,
        judged=judged,
        mid_run=mid_trajectory(trained, test, standard),
        scores=scores,
        length_score=predicted,
        equal_premature=warmups.at_equal_premature(lengths),
        steered=tuple(steer(settings, low, high) for low, high in RANGES),
    )
    return Result.of(_rows(found), lines(found), _words(found), _checks(found))


def mid_trajectory(trained: Trained, test: Sequence[Example], standard: int) -> MidRun:
    """Return how often the rejection head is right, and what breaking trajectories off saves in warm-up."""
    right, usual, saved, wrong = [], [], [], []
    for example in test:
        label = label_rows(example, REJECT)
        known = np.isfinite(label)
        if not known.any():
            continue
        said = values_of(trained, example.inputs)[REJECT]
        right.append(((said > 0.5) == (label > 0.5))[known].astype(float))
        usual.append(label[known])
        early = known & (np.arange(len(label)) < standard)
        stopped, rejected = said[early] > SURE_OF_REJECTION, label[early] > 0.5
        saved.append((1 - SEEN_AT) * (stopped & rejected) - SEEN_AT * (stopped & ~rejected))
        wrong.append((stopped & ~rejected).astype(float))
    n = len(right)
    share = float(np.concatenate(usual).mean())
    return MidRun(
        accuracy=bootstrap(pooled_mean(right), n),
        majority=max(share, 1 - share),
        saved=bootstrap(pooled_mean(saved), n),
        broken_wrongly=bootstrap(pooled_mean(wrong), n),
    )


def predicted_lengths(train: WarmUps, test: WarmUps, seed: int) -> tuple[Doubles, HeadScore]:
    """Return the warm-up that is predicted for every test chain before it runs, and the score of the prediction.

    The head sees first frames only: the coupling, the lattice, the start.
    """
    learn, waiting = ([_before_it_runs(e) for e in part.chains] for part in (train, test))
    reader = train_heads(learn, weights=reservoir(seed), layout=LENGTH)
    left_out = reader.left_out[HEAD]
    label, guess = np.expm1(left_out.label), np.maximum(np.expm1(left_out.said), 0.0)
    share = float((label > test.standard).mean())
    more = offset_for(guess, label, share)
    (score,) = evaluate(reader, learn, waiting, routes=("f32-software",))
    said = np.array([float(values_of(reader, example.inputs)[HEAD][0]) for example in waiting])
    return np.maximum(np.expm1(said), 0.0) + more, score


def _before_it_runs(example: Example) -> Example:
    """Return what is known of a chain before it runs, with its own length as the label."""
    length = np.array([np.log1p(float(example.length or 0))])
    return replace(example, rows=example.rows[:1], inputs=example.inputs[:1], labels={"quenched_length": length})


def _rows(found: Findings) -> Iterator[ResultRow]:
    """Give every figure with its interval; the reference of a saving is the standard chain."""

    def of(place: str, *what: Any, less: bool = False) -> ResultRow:
        return row_of(f"placement {place}", *what, less=less)

    places = {"head": "A", "MSER": "A", "standard": "A", "control": "A", "predicted": "E", "head and predicted": "F"}
    usual = found.judged["standard"].premature.value
    for name, place in places.items():
        judged = found.judged[name]
        yield of(place, name, "saved_trajectories_a_chain", judged.saved)
        yield of(place, name, "saved_share_of_warmup", judged.saved.times(1 / found.standard))
        yield of(place, name, "premature_share", judged.premature, usual, less=True)
        yield of(place, name, "bias_left", judged.left, less=True)
        yield of(place, name, "bias_added", judged.added, less=True)
    yield of("B", "head", "accuracy", found.mid_run.accuracy, found.mid_run.majority)
    yield of("B", "head", "saved_share_of_warmup_steps", found.mid_run.saved)
    yield of("B", "head", "broken_off_wrongly", found.mid_run.broken_wrongly, less=True)
    yield of("E", "predicted", "saved_at_equal_premature_share", found.equal_premature)
    for steered in found.steered:
        where = "gaussian-process, {:g} .. {:g}".format(*steered.range)
        yield of("D", where, "trajectory_ratio", steered.ratio, 1.0, less=True)
        yield of("F", where, "saved_share_of_all", found.saved_together(steered))
    asked = {WARM: "A", REJECT: "B", PHASE: "C", HEAD: "E"}
    for score in (*found.scores.values(), found.length_score):
        yield of(asked[score.name], "head", score.metric, score, score.baseline, less=score.metric != "accuracy")


def _checks(found: Findings) -> Iterator[Check]:
    head, control, both = (found.judged[name] for name in ("head", "control", "head and predicted"))
    mser, standard = found.judged["MSER"], found.judged["standard"].left
    seen = f"adds {control.added.low:.2f} .. {control.added.high:.2f}"
    yield "the control is seen to be biased", seen, control.added.low > 0
    asked = f"the standard warm-up of {found.standard} trajectories leaves less than {ALLOWED:g} errors"
    yield asked, f"leaves {standard.low:.2f} .. {standard.high:.2f}", max(-standard.low, standard.high) < ALLOWED

    def harmless(who: str, added: Interval) -> Check:
        asked = f"{who} adds less than {ALLOWED:g} errors of a measurement"
        return asked, f"at most {added.high:.2f}", added.high < ALLOWED

    yield harmless("A", head.added)
    yield "A saves trajectories", f"{head.saved.low:.1f} .. {head.saved.high:.1f} per chain", head.saved.low > 0
    ours, theirs = head.saved.value, mser.saved.value
    yield "A saves more than MSER", f"{ours:.1f} against {theirs:.1f} per chain", ours > theirs
    for steered in found.steered:
        asked = "D needs fewer trajectories than an even scan of {:g} .. {:g}".format(*steered.range)
        yield asked, f"{steered.ratio.low:.2f} .. {steered.ratio.high:.2f} of them", steered.ratio.high < 1
    yield harmless("F", both.added)
