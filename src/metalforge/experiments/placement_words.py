"""What experiment 020 found, as a table beside the published design's numbers, and in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from metalforge.conductor.scores import HeadScore

from .placement_rules import Judged
from .placement_steering import Steered
from .protocol import Figure, shown

__all__ = ["PUBLISHED", "Findings", "MidRun", "lines", "words"]

PUBLISHED = {
    "A": ("83.3 %", "390 of 1800 (21.7 %)"),
    "B": ("95.8 %", "0"),
    "C": ("83.3 %", "0"),
    "D": ("45.5 %", "0"),
    "E": ("50.0 %", "0"),
    "F": ("87.5 %", "390 of 1800 (21.7 %)"),
}
"""Accuracy and saved trajectories in the published design's table."""
WHY = {
    "A": "its accuracy compared a plaquette with 1/2 and not the network, and its 390 count windows called thermalised "
    "on training chains too, with nothing to show that they were",
    "B": "its features were those after the trajectory, and always saying `accepted` scores the acceptance rate",
    "C": "10 of 12 couplings, nine of them training couplings; here couplings are held out and the phase is measured",
    "D": "5 of 11 pairs by a rule between neighbours, with no campaign behind it; here campaigns are run to an error",
    "E": "6 of 12 on made-up constant series; here a length is predicted and held against the chain",
    "F": "the mean of the accuracies of A, B and C, and the sum of their savings; here the rules act together",
}
"""Why the published design's number is another, by placement."""
HEAD = (
    "placement",
    "published: accuracy",
    "published: saved",
    "accuracy here",
    "baseline",
    "saved here, of all trajectories",
    "premature",
    "bias added to that of the standard length, {standard} (errors of a measurement)",
    "why they differ",
)
"""Names of columns; the bias that is left after the standard length goes into one."""


class MidRun(NamedTuple):
    """The rejection head at a quarter of a trajectory: its accuracy, that of always saying the same, what it saves.

    `saved` is the share of warm-up steps saved when it may break trajectories off, less what wrong breaks cost.
    """

    accuracy: Figure
    majority: float
    saved: Figure
    broken_wrongly: Figure


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
    equal_premature: Figure
    steered: tuple[Steered, ...]
    """By range."""

    @property
    def whole(self) -> int:
        """Trajectories of a standard chain."""
        return self.standard + self.measured

    def of_all(self, saved: Figure) -> Figure:
        """Return saved trajectories as a share of a standard chain."""
        return saved.map(lambda value: value / self.whole)

    @property
    def saved_mid_run(self) -> Figure:
        """Steps of warm-up saved at a quarter of trajectories, as a share of a standard chain's."""
        return self.mid_run.saved.map(lambda value: value * self.standard / self.whole)

    def saved_together(self, steered: Steered) -> Figure:
        """Return 1 - (trajectories of steering over an even scan) (what A and E leave of a chain), ends with ends."""
        chain, ratio = self.of_all(self.judged["head and predicted"].saved), steered.ratio
        return Figure(
            1 - ratio.value * (1 - chain.value), 1 - ratio.high * (1 - chain.low), 1 - ratio.low * (1 - chain.high)
        )


def lines(found: Findings) -> tuple[tuple[str, ...], ...]:
    """Return the table: one line a placement, ours beside the published design's."""
    warm, rejection, phase = (found.scores.get(name) for name in ("thermalization", "rejection", "phase"))
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
    rows = {
        "A": (_score(warm), usual_stop, _percent(found.of_all(head.saved)), _percent(head.premature), _two(head)),
        "B": (rejected, usual, f"{_percent(found.saved_mid_run)}, of steps, in warm-up only", "", none),
        "C": (_score(phase), _baseline(phase), "0", "", none),
        "D": (_score(priority), _baseline(priority), scans, "", "0: chains stay exact"),
        "E": (
            _score(length),
            _baseline(length),
            _percent(found.of_all(predicted.saved)),
            _percent(predicted.premature),
            _two(predicted),
        ),
        "F": ("", "", whole, _percent(both.premature), _two(both)),
    }
    standard = _two(found.judged["standard"], "left")
    head_line = tuple(name.format(standard=standard) for name in HEAD)
    return (head_line, *((name, *PUBLISHED[name], *row, WHY[name]) for name, row in rows.items()))


def words(found: Findings) -> tuple[str, ...]:
    """Return what the table does not say."""
    head, mser, fixed, control = (found.judged[name] for name in ("head", "MSER", "standard", "control"))
    equal = found.equal_premature
    priority = found.scores.get("beta_priority")
    trusted = priority is not None and priority.trusted
    return (
        f"chains: {found.chains} held-out quenched chains that accept most trajectories; a standard one has "
        f"{found.standard} trajectories of warm-up and {found.measured} of measurement; intervals are 95 %",
        f"A waits {found.factor:g} times as long as the head took to be sure, {found.standard} trajectories at most: "
        f"it saves {_number(head.saved)} of them; MSER saves {_number(mser.saved)} with {_percent(mser.premature)} "
        f"premature and adds {_two(mser)}, the standard length has {_percent(fixed.premature)}",
        _standard(found),
        f"the control starts at the third trajectory and adds {_two(control)}: the test sees a bias",
        f"B breaks off {_percent(found.mid_run.broken_wrongly)} of warm-up trajectories that would have been accepted; "
        "in measurement it is written down only, since a chain that looks at its own rejections is not exact",
        *(_scan(steered) for steered in found.steered),
        f"D is steered by the Gaussian process: the priority head {'is' if trusted else 'is not'} better than its "
        "baseline; experiment `steering` compares all steerers on 8^3x4",
        f"E at the same premature share as the standard length: {_number(equal)} trajectories per chain saved; a head "
        "that sees first frames knows coupling, lattice and start, and most of a length is chance",
        "F multiplies what A and E leave of a chain with what D leaves of a scan, as if neither changed the other; "
        "its interval takes the ends of both",
    )


def _standard(found: Findings) -> str:
    """Return what the standard length is worth as a standard."""
    head, fixed = found.judged["head"], found.judged["standard"]
    seen = "is itself biased" if fixed.left.low > 0 else "is not seen to be biased"
    return (
        f"the standard of {found.standard} trajectories {seen}: {_two(fixed, 'left')} errors of a measurement are left "
        "of the start after it. A bias added is added to that: a rule that adds nothing leaves as much, so `adds less` "
        f"does not mean unbiased. After A {_two(head, 'left')} are left in all"
    )


def _scan(steered: Steered) -> str:
    low, high = steered.range
    return (
        f"D over {low:g} .. {high:g}: RMS error of beta_c {steered.steered:.4f} steered and {steered.even:.4f} even, "
        f"{steered.seeds} seeds of {steered.budget} updates on 4^3x2; {steered.lost[0]} and {steered.lost[1]} runs did "
        "not find it"
    )


def _percent(figure: Figure) -> str:
    return shown(figure, ".1%")


def _number(figure: Figure) -> str:
    return shown(figure, ".1f")


def _two(judged: Judged, what: str = "added") -> str:
    return shown(getattr(judged, what), "+.2f")


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
