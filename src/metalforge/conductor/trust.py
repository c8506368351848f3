r"""Whether a head is believed: its skill over the baseline, on the pairs of prediction and outcome it had so far.

    skill = 1 - sum loss(head, outcome) / sum loss(baseline, outcome)

over the last `window` pairs, both on the same pairs. A prediction waits under the id of its request until its outcome
is told, so a pair cannot be made of two different things; the origin kept two queues and compared their tails. A head
is trusted with at least 20 pairs and a positive skill. With `confidence` the lower end of a one-sided normal interval
of the mean gain must be positive too; pairs of one chain are correlated, which makes that interval too narrow.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from statistics import NormalDist, fmean, stdev
from threading import Lock
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

from metalforge.core.errors import SpecError
from metalforge.core.schema import HeadLayout

if TYPE_CHECKING:
    from .scores import HeadScore

__all__ = ["LOSSES", "Loss", "Pair", "Standing", "Trust", "TrustState", "mark_layout", "mark_scores", "trust_of"]

Loss: TypeAlias = Literal["squared", "brier", "log"]
FEWEST_PAIRS = 20
SUREST = 0.99
"""For the logarithmic loss: a formula that says yes or no is taken as this sure, else one miss would cost infinity."""


def _squared(prediction: float, outcome: float) -> float:
    return (prediction - outcome) ** 2


def _log(prediction: float, outcome: float) -> float:
    p = min(max(prediction, 1 - SUREST), SUREST)
    return -outcome * math.log(p) - (1 - outcome) * math.log1p(-p)


LOSSES: Mapping[Loss, Callable[[float, float], float]] = {"squared": _squared, "brier": _squared, "log": _log}
"""Squared error; the same of a probability (Brier, Mon. Weather Rev. 78 (1950) 1); minus the log-likelihood."""


class Pair(msgspec.Struct, frozen=True, array_like=True):
    """What the head said, what the baseline said, and what was."""

    prediction: float
    baseline: float
    outcome: float


class Pending(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prediction whose outcome has not been told yet; `baseline` None stands for the mean outcome so far."""

    id: int
    part: int = 0
    head: str
    prediction: float
    baseline: float | None
    loss: Loss


class HeadRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last pairs of a head; `seen` outcomes in all, with this mean. A `mark` says why it cannot be trusted."""

    loss: Loss | None = None
    pairs: tuple[Pair, ...] = ()
    seen: int = 0
    mean: float = 0.0
    mark: str | None = None


class TrustState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that trust remembers, as a record."""

    heads: dict[str, HeadRecord] = {}
    pending: tuple[Pending, ...] = ()
    unmatched: int = 0
    forgotten: int = 0


class Standing(NamedTuple):
    """How a head stands: `skill` is None without pairs; `trusted` decides, `why` says it in words."""

    trusted: bool
    skill: float | None
    pairs: int
    why: str


class _Head:
    def __init__(self, window: int) -> None:
        self.loss: Loss | None = None
        self.pairs: deque[Pair] = deque(maxlen=window)
        self.seen = 0
        self.mean = 0.0
        self.mark: str | None = None
        self.standing: Standing | None = None
        """As last judged; None after anything that it depends on has changed."""


class Trust:
    """Pairs by head, predictions by id. Safe to use from several threads.

    At most `capacity` predictions wait for their outcome; older ones are forgotten and counted.
    """

    def __init__(
        self,
        *,
        window: int = 100,
        minimum: int = FEWEST_PAIRS,
        confidence: float | None = None,
        capacity: int = 10_000,
    ) -> None:
        if not FEWEST_PAIRS <= minimum <= window:
            raise SpecError(f"`minimum` must be from {FEWEST_PAIRS} to `window` = {window} pairs. Got {minimum}")
        if confidence is not None and not 0.5 < confidence < 1:
            raise SpecError(f"`confidence` must be above 0.5 and below 1. Got {confidence}")
        if capacity < 1:
            raise SpecError(f"`capacity` must be at least 1. Got {capacity}")
        self.window, self.minimum, self.confidence, self.capacity = window, minimum, confidence, capacity
        self._heads: dict[str, _Head] = {}
        self._pending: dict[tuple[int, int], Pending] = {}
        self._unmatched = self._forgotten = 0
        self._lock = Lock()

    def expect(
        self, id: int, head: str, prediction: float, baseline: float | None, *, loss: Loss = "squared", part: int = 0
    ) -> None:
        """Remember what a head and its baseline said in answer to request `id`, until the outcome is told.

        Without a `baseline`, for a head whose formula has another unit, the mean of the outcomes known by then is it.
        """
        prediction = float(prediction)  # NumPy's would not go into a record
        baseline = None if baseline is None else float(baseline)
        if not math.isfinite(prediction) or (baseline is not None and not math.isfinite(baseline)):
            raise SpecError(f"a prediction of `{head}` must be a finite number. Got {prediction} beside {baseline}")
        with self._lock:
            known = self._head(head)
            if known.loss not in (None, loss):
                raise SpecError(f"`{head}` is scored by {known.loss} loss; a second measure would not compare")
            known.loss = loss
            if baseline is None and known.seen:
                baseline = known.mean
            self._pending[id, part] = Pending(
                id=id, part=part, head=head, prediction=prediction, baseline=baseline, loss=loss
            )
            if len(self._pending) > self.capacity:
                del self._pending[next(iter(self._pending))]
                self._forgotten += 1

    def outcome(self, id: int, value: float, *, part: int = 0) -> bool:
        """Pair an outcome with its prediction; returns whether one was waiting (it is counted when not)."""
        value = float(value)
        with self._lock:
            pending = self._pending.get((id, part))
            # Probabilities are of things that happen or not: a number beyond that belongs to something else.
            if pending is None or not math.isfinite(value) or (pending.loss != "squared" and not 0 <= value <= 1):
                self._unmatched += 1
                return False
            del self._pending[id, part]
            known = self._head(pending.head)
            known.seen += 1
            known.mean += (value - known.mean) / known.seen
            if pending.baseline is not None:
                known.pairs.append(Pair(pending.prediction, pending.baseline, value))
                known.standing = None
            return True

    def standing(self, head: str) -> Standing:
        """Return whether a head is trusted, and why."""
        with self._lock:
            known = self._head(head)
            if known.standing is None:
                known.standing = self._judged(known)
            return known.standing

    def _judged(self, head: _Head) -> Standing:
        pairs, skill = len(head.pairs), None
        loss = LOSSES[head.loss or "squared"]
        ours = [loss(pair.prediction, pair.outcome) for pair in head.pairs]
        theirs = [loss(pair.baseline, pair.outcome) for pair in head.pairs]
        if pairs:
            skill = _skill(sum(ours), sum(theirs))
        if head.mark is not None:
            return Standing(False, skill, pairs, head.mark)
        if skill is None or pairs < self.minimum:
            return Standing(False, skill, pairs, f"{pairs} of {self.minimum} pairs")
        why = f"skill {skill:.3g} over {pairs} pairs"
        if skill > 0 and self.confidence is not None:
            gains = [b - a for a, b in zip(ours, theirs, strict=True)]
            margin = NormalDist().inv_cdf(self.confidence) * stdev(gains) / math.sqrt(pairs)
            if fmean(gains) <= margin:
                return Standing(False, skill, pairs, f"{why}, not sure to {self.confidence:.0%}")
        return Standing(skill > 0, skill, pairs, why)

    def mark(self, head: str, why: str) -> None:
        """Say that a head cannot be trusted whatever its pairs, and why: untrained, unavailable."""
        with self._lock:
            self._mark(head, why)

    def unmark(self, head: str) -> None:
        """Take the mark off a head; its pairs decide again."""
        with self._lock:
            self._mark(head, None)

    def marked(self, head: str) -> str | None:
        """Return why a head cannot be trusted, if it was marked."""
        with self._lock:
            known = self._heads.get(head)
            return None if known is None else known.mark

    def forget(self) -> None:
        """Drop all pairs and predictions, for other weights; marks and counts stay."""
        with self._lock:
            self._pending.clear()
            for known in self._heads.values():
                known.pairs.clear()
                known.seen, known.mean, known.loss, known.standing = 0, 0.0, None, None

    def state(self) -> TrustState:
        """Return everything as a record."""
        with self._lock:
            heads = {
                name: HeadRecord(loss=h.loss, pairs=tuple(h.pairs), seen=h.seen, mean=h.mean, mark=h.mark)
                for name, h in self._heads.items()
            }
            return TrustState(
                heads=heads,
                pending=tuple(self._pending.values()),
                unmatched=self._unmatched,
                forgotten=self._forgotten,
            )

    def restore(self, state: TrustState) -> None:
        """Take over what another one remembered; the window and the rules stay this one's."""
        with self._lock:
            self._heads = {}
            for name, record in state.heads.items():
                known = self._head(name)
                known.loss, known.mark, known.seen, known.mean = record.loss, record.mark, record.seen, record.mean
                known.pairs.extend(record.pairs)
            self._pending = {(p.id, p.part): p for p in state.pending[-self.capacity :]}
            self._unmatched, self._forgotten = state.unmatched, state.forgotten

    def _mark(self, head: str, why: str | None) -> None:
        known = self._head(head)
        known.mark, known.standing = why, None

    def _head(self, name: str) -> _Head:
        return self._heads.setdefault(name, _Head(self.window))


UNTRAINED = "untrained"


def trust_of(layout: HeadLayout, *, confidence: float | None = None) -> Trust:
    """Return trust for a layout: its heads that are unavailable or untrained are marked so."""
    trust = Trust(confidence=confidence)
    mark_layout(trust, layout)
    return trust


def mark_layout(trust: Trust, layout: HeadLayout) -> None:
    """Mark the heads of a layout that are unavailable or untrained; one that was trained since loses that mark only."""
    for head in layout.heads:
        if not head.available:
            trust.mark(head.name, "unavailable: nothing feeds its inputs")
        elif not head.trained:
            trust.mark(head.name, UNTRAINED)
        elif trust.marked(head.name) == UNTRAINED:
            trust.unmark(head.name)


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
