r"""Campaigns folded into weights: what their chains taught, and whether that held for campaigns that were left out.

Readouts begin at those of the weights and follow all chains (`retrain`). What that is worth is measured by leaving out
one campaign after the other: heads are learned from the others and asked about it, beside the weights as they were and
a baseline: the curve that the head is counted from, or else the mean label of the others. A head is adopted where its
squared error over all campaigns that were left out became smaller; one that became worse stays as it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import NamedTuple

import msgspec
import numpy as np

from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError
from metalforge.reservoir.weights import EsnWeights

from .retrain import Retrain


class TaughtChain(NamedTuple):
    """What the readout saw of a chain on average, and its labels by head."""

    mean: Doubles
    labels: Mapping[str, float]


class AdoptedHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A head on campaigns that were left out: root mean squares of what it was off by, as it was and as it is now.

    `baseline` is that of the head's base curve, or of the mean over the other campaigns; skills are over it.
    """

    name: str
    campaigns: int
    chains: int
    before: float
    after: float
    baseline: float
    skill_before: float
    skill_after: float
    adopted: bool


class Adoption(NamedTuple):
    """The weights, with the readouts of the heads that were adopted, and every head's scores."""

    weights: EsnWeights
    heads: tuple[AdoptedHead, ...]


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
    learned = _learned(weights, teaching)
    heads = tuple(score for name in learned.heads if (score := _score(name, weights, teaching, force)) is not None)
    chosen = [score.name for score in heads if score.adopted]
    if not chosen:
        said = ", ".join(f"{h.name} {h.before:.3g} -> {h.after:.3g}" for h in heads) or "no head was taught"
        raise SpecError(
            f"no head became better on campaigns that were left out ({said}): the weights stay as they are"
            "\nhint: more campaigns, or --force to write them all the same"
        )
    w_out, bias = learned.readout(learned=chosen)
    return Adoption(replace(weights, w_out=w_out, out_bias=bias), heads)


def _learned(weights: EsnWeights, campaigns: Sequence[Sequence[TaughtChain]], only: str | None = None) -> Retrain:
    learning = Retrain(weights, None if only is None else [only])
    for chain in (chain for chains in campaigns for chain in chains):
        for head in learning.heads:
            if head in chain.labels:
                learning.learn(head, chain.mean, chain.labels[head])
    return learning


def _score(
    head: str, weights: EsnWeights, campaigns: Sequence[Sequence[TaughtChain]], force: bool
) -> AdoptedHead | None:
    """Return how a head did on every campaign by what the others taught; None where fewer than two teach it."""
    taught = [[chain for chain in chains if head in chain.labels] for chains in campaigns]
    taught = [chains for chains in taught if chains]
    if len(taught) < 2:
        return None
    off: list[tuple[float, ...]] = []
    for i, left_out in enumerate(taught):
        others = [chains for k, chains in enumerate(taught) if k != i]
        learned = _learned(weights, others, only=head)
        usual = float(np.mean([chain.labels[head] for chains in others for chain in chains]))
        for chain in left_out:
            shipped, new = learned.says(head, chain.mean)
            curve = learned.baseline(head, chain.mean)
            said = shipped, new, usual if curve is None else curve
            off.append(tuple(value - chain.labels[head] for value in said))
    before, after, baseline = (float(x) for x in np.mean(np.square(off), axis=0))
    return AdoptedHead(
        name=head,
        campaigns=len(taught),
        chains=len(off),
        before=sqrt(before),
        after=sqrt(after),
        baseline=sqrt(baseline),
        skill_before=1 - before / baseline if baseline else 0.0,
        skill_after=1 - after / baseline if baseline else 0.0,
        adopted=force or after < before,
    )
