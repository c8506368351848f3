r"""Suggestions of steerers before a visit, what a head's answer changed in them, and when lanes sleep.

A head may say where a peak is expected. A visit is the head's decision only where the same steerer, asked in the same
state without that answer, would have it elsewhere. A steerer that draws random curves places a visit elsewhere after
the slightest change of what it is told, so it is asked several times: with both answers, and with each moved by a small
share (`MOVED`) of its width. The head decided where all places with its answer are on one side of all those without it.

Producers of ordering E sleep while a variance is small:

    variance = mean over b of Var[log chi(b)],     b drawn from the posterior of the peak's place,

under the Gaussian process through what was measured, so that regions far from the peak do not count. Below the
threshold producers get no more visits. Once those under way are complete, an estimate is made from everything that was
measured. Where its evidence is incomplete or its error is above the target, each producer is given one more round of
visits, and the variance is compared with the threshold again. Otherwise the campaign is over.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metalforge.campaign.analysis.selection import observe
from metalforge.campaign.chain_log import series_of
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState
from metalforge.campaign.steerers.posterior import Curves, fit_processes
from metalforge.campaign.theory import System
from metalforge.core import ExpectsPeak, Steerer, Suggestion, one_thread

from .book import Book

MOVED = 0.01
"""Change of an expected peak, as a share of its width, that means nothing."""
FEWEST = 4
"""Chains below which nothing is certain."""
GRID = 101
PATHS = 256


class Suggested(NamedTuple):
    """A suggestion; where it follows a head's answer, also what is suggested by other answers."""

    found: Suggestion
    head: str = ""
    """The head that the steerer followed; empty for none."""
    alike: tuple[Suggestion | None, ...] = ()
    """With the head's answer, and with answers that say the same."""
    without: tuple[Suggestion | None, ...] = ()
    """Without the head's answer, and with answers that say the same as that; None where there is none."""


class AskAhead:
    """Suggestions for visits that are decided together: asked for once for all of them, so that they are spread."""

    def __init__(self, count: int = 1) -> None:
        self._left = count
        self._found: dict[System, list[Suggested]] = {}

    def next(
        self, system: System, steerer: Steerer, pending: Sequence[float], state: CampaignState
    ) -> Suggested | None:
        """Return the next suggestion for a volume; None where its steerer has no wish."""
        found = self._found.setdefault(system, [])
        if not found:
            found += _suggested(system, steerer, max(self._left, 1), pending, state)
        self._left -= 1
        return found.pop(0) if found else None


def _suggested(
    system: System, steerer: Steerer, n: int, pending: Sequence[float], state: CampaignState
) -> list[Suggested]:
    """Return at most n suggestions of a steerer that is told where the peak is expected."""
    if not isinstance(steerer, ExpectsPeak):
        return [Suggested(found) for found in steerer.ask(n, pending)]
    expected, prior = state.expected(system), state.prior(system)

    def asked(prior: tuple[float, float] | None) -> list[Suggestion]:
        steerer.expect(prior)
        return steerer.ask(n, pending)

    found = asked(prior)
    if expected is None or prior is None or not expected.head:
        return [Suggested(one) for one in found]
    baseline = state.prior(system, by_heads=False)
    alike: list[Sequence[Suggestion | None]] = [found]
    without: list[Sequence[Suggestion | None]] = [_matched(found, asked(baseline))]
    if any(other is None or other.coordinate != one.coordinate for one, other in zip(found, without[0], strict=True)):
        for prior_of, suggestions in ((prior, alike), (baseline, without)):
            suggestions += [_matched(found, asked(other)) for other in _said_alike(prior_of)]
    steerer.expect(prior)
    return [
        Suggested(one, expected.head, tuple(each[i] for each in alike), tuple(each[i] for each in without))
        for i, one in enumerate(found)
    ]


def _said_alike(prior: tuple[float, float] | None) -> list[tuple[float, float]]:
    """Return what says the same as a prior: its mean moved by a share `MOVED` of its width, down and up."""
    if prior is None:
        return []
    mean, width = prior
    return [(mean + by * width, width) for by in (-MOVED, MOVED)]


def _matched(found: Sequence[Suggestion], others: Sequence[Suggestion]) -> list[Suggestion | None]:
    """Return other suggestions beside those that were found, both in order: they were asked for together."""
    places = sorted(range(len(found)), key=lambda i: found[i].coordinate)
    beside: list[Suggestion | None] = [None] * len(found)
    for place, other in zip(places, sorted(others, key=lambda one: one.coordinate), strict=False):
        beside[place] = other
    return beside


def predictive_variance(book: Book, spec: CampaignSpec, system: System) -> float | None:
    """Return the variance of log chi where the peak may be; None while there are too few chains."""
    with book.reading() as state:
        chains = [c for c in state.chains.values() if c.system == system and c.complete and not c.abandoned]
        series = [(series_of(spec.theory, c, complete=True), c.id, float(c.complete)) for c in chains]
    seen = [observe(point, id=chain, cost=cost) for point, chain, cost in series]
    told = sorted((o for o in seen if o is not None and o.value > 0), key=lambda o: (o.coordinate, o.id))
    if len(told) < FEWEST:
        return None
    low, high = spec.theory.low, spec.theory.high
    x = (np.array([o.coordinate for o in told]) - low) / (high - low)
    with one_thread():
        curves = Curves(fit_processes(told, x), np.linspace(0, 1, GRID), GRID, PATHS, np.random.default_rng(spec.seed))
    spread = curves.paths.var(axis=1)
    return float(np.interp(curves.peaks(), curves.x, spread).mean())


def reason_to_wake(state: CampaignState, system: System) -> str | None:
    """Return why a volume whose variance is small must be measured further; None where nothing asks for that.

    It is for campaigns that have not met their target, if they have one: those that have are over.
    """
    look, target = state.last_look(system), state.spec.budget.target_error
    if look is None or look.error is None or not look.established:
        return "the evidence is not complete"
    return None if target is None else f"the target error of {target:g} is not met yet"


def reason_to_sleep(book: Book, spec: CampaignSpec, system: System) -> str | None:
    """Return why the producers of a volume may sleep, or None where they may not."""
    variance = predictive_variance(book, spec, system)
    if variance is None or variance > spec.screening.variance:
        return None
    return f"the variance of log chi around the peak is {variance:.3g}, below {spec.screening.variance:g}"
