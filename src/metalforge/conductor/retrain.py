r"""Readouts that learn from chains whose labels are known by now: rows go in, the better of two readouts comes out.

Recursive least squares that begins at the shipped readout and is drawn to it,

    W = argmin sum_t (y_t - W x_t)^2 + alpha |W - W_0|^2,      x = [mean of s over frames; mean of u; 1],

with one row for what a settled chain has shown: the reading of a mean frame is the mean of the readings. Every row is
asked of both readouts before it is learned, so that they are judged on what neither has seen; the learned one speaks
for a head only after it was the better over `FEWEST` such rows, and no longer than it is. What was learned is a
function of the rows and their order alone: told again, they give the same readout, bit for bit.

States are those of the network in software, wherever it runs: on a device they differ by its rounding.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from metalforge.core.arrays import Doubles, Reals
from metalforge.core.errors import SpecError
from metalforge.reservoir.engine import Engine, init
from metalforge.reservoir.heads import BaseCurves
from metalforge.reservoir.least_squares import LeastSquares, absorb
from metalforge.reservoir.weights import EsnWeights

LEARNED = {
    "schedule": "log updates",
    "quality": "log samples an evaluation",
    "deconfinement": "log",
    "beta_priority": "left-out errors of the transition curve",
}
"""Heads whose labels a campaign knows once a chain has statistics enough, with the unit of the label: weights whose
heads have other units were trained for something else."""
ALPHA = 30.0
"""The penalty: a row of the usual size, |x|^2 of about 50, moves its own reading by 0.6 of what it was off. Readouts
fitted to two campaigns on 4^3x2 that learned from seven chains on 6^3x2 were then off by 0.40 instead of 0.46 in
`schedule` and by 0.06 instead of 0.37 in `deconfinement` on another campaign; with 300, by 0.45 and 0.19, with 3, by
0.31 and 0.04, which trusts single chains more than labels with a noise of 0.2 allow."""
FEWEST = 10
"""Rows over which the learned readout must have been the better."""
WINDOW = 100
"""Rows that count."""


class JudgedRow(NamedTuple):
    """What both readouts and the baseline said of a row before it was learned, and what was; in the head's unit."""

    shipped: float
    learned: float
    baseline: float
    outcome: float


class MeanFrames:
    """What the readout sees of one chain, averaged over its frames from some update on; frames are taken in order."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._state = engine, init(engine.weights)
        self._sum: Doubles = np.zeros(engine.units + engine.inputs)
        self.frames = 0
        """Frames in the mean."""

    def take(self, frames: Reals, *, counts: bool) -> None:
        """Move the state by frames (steps, inputs); with `counts` they are in the mean."""
        if not len(frames):
            return
        states = self._engine.run(frames, self._state)
        self._state = states[-1]
        if counts:
            self._sum += np.concatenate([states.sum(axis=0, dtype=np.float64), np.asarray(frames).sum(axis=0)])
            self.frames += len(frames)

    @property
    def mean(self) -> Doubles:
        """The mean (units + inputs,)."""
        if not self.frames:
            raise SpecError("there is no frame to average")
        return self._sum / self.frames


class Retrain:
    """Learns the readouts of some heads of a network, beside those that it came with; without names, of `LEARNED`."""

    def __init__(self, weights: EsnWeights, heads: Iterable[str] | None = None, *, alpha: float = ALPHA) -> None:
        if weights.heads is None or weights.w_out is None or weights.out_bias is None or not weights.passthrough:
            raise SpecError("readouts are retrained of weights with a head layout, whose heads see states and inputs")
        self.weights, self.layout = weights, weights.heads
        self._bases = BaseCurves(weights.heads, weights.features)
        shipped = np.column_stack([weights.w_out, weights.out_bias]).astype(np.float64)
        width = shipped.shape[1]
        self._shipped: dict[str, Doubles] = {}
        self._learned: dict[str, LeastSquares] = {}
        self._judged: dict[str, deque[JudgedRow]] = {}
        known = (head.name for head in self.layout.heads if head.unit == LEARNED.get(head.name))
        for name in known if heads is None else heads:
            head = self.layout[name]
            if head.width == 1 and head.activation in ("identity", "relu") and head.trained and head.available:
                self._shipped[name] = shipped[self.layout.span(name)]
                self._learned[name] = LeastSquares(self._shipped[name], np.eye(width) / alpha, 0)
                self._judged[name] = deque(maxlen=WINDOW)

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads that can be learned: numbers that the shipped weights were trained for."""
        return tuple(self._learned)

    def rows(self, head: str) -> int:
        """Return how many rows a head has learned."""
        return self._learned[head].rows

    def learn(self, head: str, mean: Doubles, label: float) -> JudgedRow:
        """Take what a settled chain showed (`MeanFrames.mean`) and its label; return what was said before.

        The baseline is the curve that the head is counted from; of a head without one the mean of the labels so far.
        """
        if not (np.isfinite(mean).all() and np.isfinite(label)):
            raise SpecError(f"a row of `{head}` must be finite. Got label {label}")
        (shipped, learned), baseline = self.says(head, mean), self.baseline(head, mean)
        if baseline is None:
            before = [row.outcome for row in self._judged[head]]
            baseline = sum(before) / len(before) if before else shipped
        row = JudgedRow(shipped, learned, baseline, label)
        self._judged[head].append(row)
        spec, x = self.layout[head], np.append(mean, 1.0)
        target = (label - self._base(head, mean) - spec.offset) / spec.scale
        self._learned[head] = absorb(self._learned[head], x[None], np.array([[target]]), 1.0)
        return row

    def baseline(self, head: str, mean: Doubles) -> float | None:
        """Return what the curve that a head is counted from says of a chain; None for a head without one."""
        spec = self.layout[head]
        return None if spec.base is msgspec.UNSET else spec.offset + self._base(head, mean)

    def _base(self, head: str, mean: Doubles) -> float:
        values = np.zeros(self.layout.width)
        self._bases.add(values, mean[self.weights.units :])
        return float(values[self.layout.span(head).start])

    def says(self, head: str, mean: Doubles) -> tuple[float, float]:
        """Return what the shipped and the learned readout say of a chain."""
        spec, x, base = self.layout[head], np.append(mean, 1.0), self._base(head, mean)
        outputs = [float((w @ x)[0]) for w in (self._shipped[head], self._learned[head].w_out)]
        shipped, learned = (max(y, 0.0) if spec.activation == "relu" else y for y in outputs)
        return base + spec.offset + spec.scale * shipped, base + spec.offset + spec.scale * learned

    def judged(self, head: str) -> Sequence[JudgedRow]:
        """Return the last rows, oldest first."""
        return tuple(self._judged[head])

    def learned_speaks(self, head: str) -> bool:
        """Return whether the learned readout was the better over the rows that count."""
        rows = self._judged[head]
        ours, theirs = (sum((getattr(r, of) - r.outcome) ** 2 for r in rows) for of in ("learned", "shipped"))
        return len(rows) >= FEWEST and ours < theirs

    def speaking(self, head: str, row: JudgedRow) -> float:
        """Return what the readout that speaks now said of a row."""
        return row.learned if self.learned_speaks(head) else row.shipped

    def readout(self, *, learned: Iterable[str] | None = None) -> tuple[Reals, Reals]:
        """Return the matrix and the biases of all heads; `learned` are those whose learned rows are in it.

        By default they are the heads for which the learned readout speaks.
        """
        assert self.weights.w_out is not None
        assert self.weights.out_bias is not None
        w_out, bias = self.weights.w_out.copy(), self.weights.out_bias.copy()
        for name in filter(self.learned_speaks, self.heads) if learned is None else learned:
            span, found = self.layout.span(name), self._learned[name].w_out
            w_out[span], bias[span] = found[:, :-1], found[:, -1]
        return w_out, bias
