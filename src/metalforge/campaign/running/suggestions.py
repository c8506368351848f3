"""Suggestions of steerers, and what a head's answer changed in them.

A head may say where a peak is expected. A visit is the head's decision only where the same steerer, asked in the same
state without that answer, would have it elsewhere. A steerer that draws random curves places a visit elsewhere after
the slightest change of what it is told, so it is asked several times: with both answers, and with each moved by a small
share (`MOVED`) of its width. The head decided where all places with its answer are on one side of all those without it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from metalforge.campaign.state import CampaignState
from metalforge.campaign.theory import System
from metalforge.core import ExpectsPeak, Steerer, Suggestion

MOVED = 0.01
"""Change of an expected peak, as a share of its width, that means nothing."""


class Suggested(NamedTuple):
    """A suggestion; where it follows a head's answer, also what is suggested by other answers."""

    found: Suggestion
    head: str = ""
    """The head that the steerer followed; empty for none."""
    baseline: Suggestion | None = None
    """Without the head's answer; None where there is none."""
    alike: tuple[Suggestion | None, ...] = ()
    """With answers that say the same as the head's."""
    baselines: tuple[Suggestion | None, ...] = ()
    """With answers that say the same as that without the head."""


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
    without = state.prior(system, by_heads=False)
    baseline = _matched(found, asked(without))
    alike: list[list[Suggestion | None]] = []
    baselines: list[list[Suggestion | None]] = []
    if any(other is None or other.coordinate != one.coordinate for one, other in zip(found, baseline, strict=True)):
        alike, baselines = ([_matched(found, asked(other)) for other in _said_alike(p)] for p in (prior, without))
    steerer.expect(prior)
    return [
        Suggested(one, expected.head, baseline[i], tuple(f[i] for f in alike), tuple(f[i] for f in baselines))
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
