r"""Campaigns folded into weights: what their chains taught, and whether that held for campaigns that were left out.

A readout learns by recursive least squares that begins at the readout of the weights and is drawn to it,

    W = argmin sum_t (y_t - W x_t)^2 + alpha |W - W_0|^2,      x = [mean of s over frames; mean of u; 1],

with one row for what a settled chain has shown: the reading of a mean frame is the mean of the readings. What that is
worth is measured by leaving out one campaign after the other: heads are learned from the others and asked about it,
beside the weights as they were and a baseline: the curve that the head is counted from, or else the mean label of the
others. A head is adopted where its squared error over all campaigns that were left out became smaller; one that became
worse stays as it was. An adopted head acts in campaigns only where its skill over the baseline is positive beyond its
interval (`AdoptedHead.trusted`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain as chained
from math import sqrt
from typing import NamedTuple

import msgspec
import numpy as np

from metalforge.core import Doubles, SpecError
from metalforge.reservoir import BaseCurves, EsnWeights, LeastSquares, absorb

from .scores import AdoptedHead, skill_interval

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


BLOCK = 64
"""Rows that are learned at once."""


class TaughtChain(NamedTuple):
    """What the readout saw of a chain on average, and its labels by head."""

    mean: Doubles
    labels: Mapping[str, float]


class Adoption(NamedTuple):
    """The weights, with the readouts of the heads that were adopted, and every head's scores."""

    weights: EsnWeights
    heads: tuple[AdoptedHead, ...]


def learnable(weights: EsnWeights) -> tuple[str, ...]:
    """Return the heads of weights that chains can teach: numbers that the weights were trained for."""
    layout, _, _ = weights.head_readout()
    if not weights.passthrough:
        raise SpecError("readouts are retrained of weights whose heads see states and inputs")
    return tuple(
        head.name
        for head in layout.heads
        if head.unit == LEARNED.get(head.name)
        and head.width == 1
        and head.activation in ("identity", "relu")
        and head.trained
        and head.available
    )


class LearnedHead:
    """The readout of one head, as it came with the weights and as chains teach it: `row`, with its bias last."""

    def __init__(self, weights: EsnWeights, head: str, chains: Iterable[TaughtChain] = ()) -> None:
        heads, w_out, out_bias = weights.head_readout()
        self._spec, self._span, self._units = heads[head], heads.span(head), weights.units
        self._bases, self._width = BaseCurves(heads, weights.features), heads.width
        self._shipped = np.column_stack([w_out, out_bias]).astype(np.float64)[self._span]
        learned = LeastSquares(self._shipped, np.eye(self._shipped.shape[1]) / ALPHA, 0)
        taught = [chain for chain in chains if head in chain.labels]
        for block in (taught[i : i + BLOCK] for i in range(0, len(taught), BLOCK)):
            means, labels = np.array([chain.mean for chain in block]), _labels(block, head)
            if not (np.isfinite(means).all() and np.isfinite(labels).all()):
                raise SpecError(f"rows of `{head}` must be finite. Got labels {labels}")
            targets = (labels - self._base(means) - self._spec.offset) / self._spec.scale
            learned = absorb(learned, _with_one(means), targets[:, np.newaxis], 1.0)
        self.row: Doubles = learned.w_out[0]

    def says(self, means: Doubles, usual: float) -> Doubles:
        """Return what the shipped readout, the learned one and the baseline say of chains, (chains, 3).

        The baseline is the curve that the head is counted from; `usual` for a head without one.
        """
        spec, base = self._spec, self._base(means)
        outputs = _with_one(means) @ np.stack([self._shipped[0], self.row], axis=1)
        outputs = np.maximum(outputs, 0.0) if spec.activation == "relu" else outputs
        curve = np.full(len(means), usual) if spec.base is msgspec.UNSET else base + spec.offset
        return np.column_stack([base[:, np.newaxis] + spec.offset + spec.scale * outputs, curve])

    def _base(self, means: Doubles) -> Doubles:
        values = np.zeros((len(means), self._width))
        self._bases.add(values, means[:, self._units :])
        return values[:, self._span.start]


def _with_one(means: Doubles) -> Doubles:
    return np.column_stack([means, np.ones(len(means))])


def _labels(chains: Sequence[TaughtChain], head: str) -> Doubles:
    return np.array([chain.labels[head] for chain in chains])


def adopt(weights: EsnWeights, campaigns: Sequence[Sequence[TaughtChain]], *, force: bool = False) -> Adoption:
    """Return weights that learned from campaigns; with `force` every head that was taught is adopted.

    Raises where fewer than two campaigns teach anything, and without `force` where no head became better.
    """
    teaching = [chains for chains in campaigns if chains]
    if len(teaching) < 2:
        raise SpecError(
            f"weights are judged on campaigns that are left out: two that teach are wanted. Got {len(teaching)}"
            "\nhint: chains teach once they are 100 autocorrelation times long"
        )
    heads = tuple(score for name in learnable(weights) if (score := _score(name, weights, teaching, force)) is not None)
    chosen = [score.name for score in heads if score.adopted]
    if not chosen:
        said = ", ".join(f"{h.name} {h.before:.3g} -> {h.after:.3g}" for h in heads) or "no head was taught"
        raise SpecError(
            f"no head became better on campaigns that were left out ({said}): the weights stay as they are"
            "\nhint: more campaigns, or --force to write them all the same"
        )
    layout, *readout = weights.head_readout()
    w_out, bias = (part.copy() for part in readout)
    for name in chosen:
        span, row = layout.span(name), LearnedHead(weights, name, chained.from_iterable(teaching)).row
        w_out[span], bias[span] = row[:-1], row[-1]
    return Adoption(replace(weights, w_out=w_out, out_bias=bias), heads)


def _score(
    head: str, weights: EsnWeights, campaigns: Sequence[Sequence[TaughtChain]], force: bool
) -> AdoptedHead | None:
    """Return how a head did on every campaign by what the others taught; None where fewer than two teach it."""
    taught = [[chain for chain in chains if head in chain.labels] for chains in campaigns]
    taught = [chains for chains in taught if chains]
    if len(taught) < 2:
        return None
    losses: list[Doubles] = []
    for left_out in taught:
        others = [chain for chains in taught if chains is not left_out for chain in chains]
        usual = float(np.mean(_labels(others, head)))
        said = LearnedHead(weights, head, others).says(np.array([chain.mean for chain in left_out]), usual)
        losses.append(np.square(said - _labels(left_out, head)[:, np.newaxis]).sum(axis=0))
    count = [len(chains) for chains in taught]
    by_campaign = np.array(losses)
    before, after, baseline = (float(x) for x in by_campaign.sum(axis=0) / sum(count))
    skill = skill_interval(by_campaign[:, 1].tolist(), by_campaign[:, 2].tolist(), count)
    return AdoptedHead(
        name=head,
        campaigns=len(taught),
        chains=sum(count),
        before=sqrt(before),
        after=sqrt(after),
        baseline=sqrt(baseline),
        skill_before=1 - before / baseline if baseline else 0.0,
        skill_after=skill.value,
        skill_low=skill.low,
        skill_high=skill.high,
        adopted=force or after < before,
    )
