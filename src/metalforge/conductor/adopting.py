r"""Campaigns folded into weights: what their chains taught, and whether that held for campaigns that were left out.

Readouts begin at those of the weights and follow all chains (`retrain`). What that is worth is measured by leaving out
one campaign after the other: heads are learned from the others and asked about it, beside the weights as they were and
a baseline: the curve that the head is counted from, or else the mean label of the others. A head is adopted where its
squared error over all campaigns that were left out became smaller; one that became worse stays as it was. An adopted
head acts in campaigns only where its skill over the baseline is positive beyond its interval (`AdoptedHead.trusted`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import NamedTuple

import numpy as np

from metalforge.core.arrays import Doubles
from metalforge.core.errors import SpecError
from metalforge.reservoir.weights import EsnWeights

from .retrain import Retrain
from .scores import AdoptedHead, skill_interval


class TaughtChain(NamedTuple):
    """What the readout saw of a chain on average, and its labels by head."""

    mean: Doubles
    labels: Mapping[str, float]


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
    losses: list[Doubles] = []
    for i, left_out in enumerate(taught):
        others = [chains for k, chains in enumerate(taught) if k != i]
        learned = _learned(weights, others, only=head)
        usual = float(np.mean([chain.labels[head] for chains in others for chain in chains]))
        off: list[tuple[float, ...]] = []
        for chain in left_out:
            shipped, new = learned.says(head, chain.mean)
            curve = learned.baseline(head, chain.mean)
            said = shipped, new, usual if curve is None else curve
            off.append(tuple(value - chain.labels[head] for value in said))
        losses.append(np.square(off).sum(axis=0))
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
