r"""Whether a head is believed: its skill over the baseline, on the pairs of prediction and outcome it had so far.

    skill = 1 - sum loss(head, outcome) / sum loss(baseline, outcome)

over the last `window` pairs of every chain, both on the same pairs; by chain, so that which of several was faster makes
no difference. A prediction waits under the id of its question until its outcome
is told, so a pair cannot be made of two different things. A head is trusted with at least 20 pairs and a positive
skill.

The thermalisation head, whose word ends a warm-up, must have been sure for some frames in a row (`EarlyStop`).
"""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout

from .layouts import needs

if TYPE_CHECKING:
    from .scores import HeadScore

Loss: TypeAlias = Literal["squared", "brier", "log"]
FEWEST_PAIRS = 20
SUREST = 0.99
"""For the logarithmic loss: a formula that says yes or no is taken as this sure, else one miss would cost infinity."""
SURE, IN_A_ROW = 0.9, 3
"""Above which the thermalisation head is sure, and frames in a row for which it must be."""


def _squared(prediction: float, outcome: float) -> float:
    return (prediction - outcome) ** 2


def _log(prediction: float, outcome: float) -> float:
    p = min(max(prediction, 1 - SUREST), SUREST)
    return -outcome * math.log(p) - (1 - outcome) * math.log1p(-p)


LOSSES: Mapping[Loss, Callable[[float, float], float]] = {"squared": _squared, "brier": _squared, "log": _log}
"""Squared error; the same of a probability (Brier, Mon. Weather Rev. 78 (1950) 1); minus the log-likelihood."""


class Pair(NamedTuple):
    """What the head said, what the baseline said, and what was."""

    prediction: float
    baseline: float
    outcome: float


class JudgedPair(NamedTuple):
    """A pair with what it is of, for whoever judges the same head elsewhere."""

    head: str
    pair: Pair
    loss: Loss
    chain: str = ""


class Standing(NamedTuple):
    """How a head stands: `skill` is None without pairs; `trusted` decides, `why` says it in words."""

    trusted: bool
    skill: float | None
    pairs: int
    why: str


class _Head:
    def __init__(self, window: int) -> None:
        self.loss: Loss | None = None
        self.pairs: dict[str, deque[Pair]] = defaultdict(partial(deque, maxlen=window))
        self.mark: str | None = None
        self.standing: Standing | None = None
        """As last judged; None after anything that it depends on has changed."""


class Trust:
    """Pairs by head, predictions by id. Safe to use from several threads.

    At most `capacity` predictions wait for their outcome; older ones are forgotten and counted.
    """

    def __init__(self, *, window: int = 100, capacity: int = 10_000) -> None:
        if window < FEWEST_PAIRS or capacity < 1:
            raise SpecError(
                f"trust wants a `window` of {FEWEST_PAIRS} pairs or more and a `capacity`. Got {window} and {capacity}"
            )
        self.window, self.capacity = window, capacity
        self._heads: dict[str, _Head] = {}
        self._pending: dict[int, JudgedPair] = {}
        """What was said, with an outcome that is not a number yet."""
        self.unmatched = 0
        """Outcomes that no prediction waited for."""
        self.forgotten = 0
        """Predictions that waited too long."""
        self.heard: Callable[[JudgedPair], object] | None = None
        """Who is told of every pair."""
        self._lock = Lock()

    def expect(
        self, id: int, head: str, prediction: float, baseline: float, *, loss: Loss = "squared", chain: str = ""
    ) -> None:
        """Remember what a head and its baseline said in answer to question `id`, until the outcome is told."""
        if not (math.isfinite(prediction) and math.isfinite(baseline)):
            raise SpecError(f"a prediction of `{head}` must be a finite number. Got {prediction} beside {baseline}")
        with self._lock:
            known = self._head(head)
            if known.loss not in (None, loss):
                raise SpecError(f"`{head}` is scored by {known.loss} loss; a second measure would not compare")
            known.loss = loss
            self._pending[id] = JudgedPair(head, Pair(float(prediction), float(baseline), math.nan), loss, chain)
            if len(self._pending) > self.capacity:
                del self._pending[next(iter(self._pending))]
                self.forgotten += 1

    @property
    def waiting(self) -> tuple[int, ...]:
        """The questions whose outcomes have not been told, oldest first."""
        with self._lock:
            return tuple(self._pending)

    def outcome(self, id: int, value: float) -> bool:
        """Pair an outcome with its prediction; returns whether one was waiting (it is counted when not)."""
        with self._lock:
            pending = self._pending.get(id)
            # Probabilities are of things that happen or not: a number beyond that belongs to something else.
            if pending is None or not math.isfinite(value) or (pending.loss != "squared" and not 0 <= value <= 1):
                self.unmatched += 1
                return False
            del self._pending[id]
        self.take(pending._replace(pair=pending.pair._replace(outcome=float(value))))
        return True

    def take(self, judged: JudgedPair) -> None:
        """Add a pair, made here or elsewhere."""
        with self._lock:
            known = self._head(judged.head)
            known.loss = judged.loss
            known.pairs[judged.chain].append(judged.pair)
            known.standing = None
        if self.heard is not None:
            self.heard(judged)

    def standing(self, head: str) -> Standing:
        """Return whether a head is trusted, and why."""
        with self._lock:
            known = self._head(head)
            if known.standing is None:
                known.standing = self._judged(known)
            return known.standing

    def _judged(self, head: _Head) -> Standing:
        judged = [pair for chain in sorted(head.pairs) for pair in head.pairs[chain]]
        pairs, skill = len(judged), None
        loss = LOSSES[head.loss or "squared"]
        ours = [loss(pair.prediction, pair.outcome) for pair in judged]
        theirs = [loss(pair.baseline, pair.outcome) for pair in judged]
        if pairs:
            skill = _skill(sum(ours), sum(theirs))
        if head.mark is not None:
            return Standing(False, skill, pairs, head.mark)
        if skill is None or pairs < FEWEST_PAIRS:
            return Standing(False, skill, pairs, f"{pairs} of {FEWEST_PAIRS} pairs")
        return Standing(skill > 0, skill, pairs, f"skill {skill:.3g} over {pairs} pairs")

    def mark(self, head: str, why: str) -> None:
        """Say that a head cannot be trusted whatever its pairs, and why: untrained, unavailable, no skill."""
        with self._lock:
            known = self._head(head)
            known.mark, known.standing = why, None

    def marked(self, head: str) -> str | None:
        """Return why a head cannot be trusted, if it was marked."""
        with self._lock:
            known = self._heads.get(head)
            return None if known is None else known.mark

    def _head(self, name: str) -> _Head:
        return self._heads.setdefault(name, _Head(self.window))


def trust_of(layout: HeadLayout) -> Trust:
    """Return trust for a layout: its heads that are unavailable or untrained are marked so."""
    trust = Trust()
    for head in layout.heads:
        if not head.available:
            trust.mark(head.name, f"unavailable: needs {needs(head.name)} input")
        elif not head.trained:
            trust.mark(head.name, "untrained")
    return trust


def mark_scores(trust: Trust, scores: "Iterable[HeadScore]", *, route: str = "f32-software") -> None:
    """Mark the heads that an evaluation on held-out chains does not trust on a route, with what they were worth."""
    for score in scores:
        if score.route == route and not score.trusted:
            why = f"no skill on held-out chains: {score.metric} {score.value:.3g}, {score.baseline_name} has "
            trust.mark(score.name, f"{why}{score.baseline:.3g}")


def _skill(head: float, baseline: float) -> float:
    """Return 1 - head / baseline; against a baseline without any loss there is nothing to gain."""
    if baseline == 0:
        return 0.0 if head == 0 else -math.inf
    return 1 - head / baseline


def first_yes(yes: NDArray[np.bool_]) -> int:
    """Return the first index that says yes; the length where none does."""
    return int(np.argmax(yes)) if yes.any() else len(yes)


def first_sure(probability: NDArray[np.float64], sure: float = SURE, in_a_row: int = IN_A_ROW) -> int:
    """Return after how many frames the head has been sure for some in a row; one more than all if it was not."""
    run = np.convolve(probability > sure, np.ones(in_a_row), mode="full")[: len(probability)] > in_a_row - 0.5
    return first_yes(run) + 1


class EarlyStop(NamedTuple):
    """The rule: `factor` times the frames until the head was above `sure` for `in_a_row` of them."""

    sure: float
    in_a_row: int
    factor: float

    def ends(self, said: Sequence[float]) -> bool:
        """Return whether a warm-up of which the head said this may end."""
        return len(said) >= self.factor * first_sure(np.array(said), self.sure, self.in_a_row)
