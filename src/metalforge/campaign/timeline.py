"""When a substrate worked and on what, in bounded memory: what is long ago is known to a coarser grain."""

from collections.abc import Sequence
from typing import NamedTuple

MOST_SPANS = 4000
"""Stretches that are kept of one substrate; then short ones are put together, so that fewer are left."""
AT_ONCE = 16
"""Stretches among which one of the same chain is looked for: a card runs many chains at a time."""


class Span(NamedTuple):
    """A stretch of work, in seconds since the epoch, of which `busy` were work; without a name, on several chains."""

    chain: str
    began: float
    ended: float
    busy: float

    def within(self, low: float, high: float) -> float:
        """Return the seconds of work between two moments."""
        shown = min(self.ended, high) - max(self.began, low)
        return self.busy * max(shown, 0.0) / (self.ended - self.began) if self.ended > self.began else 0.0


class Timeline:
    """What one substrate did."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        """In the order in which they ended, roughly."""

    def fork(self) -> "Timeline":
        """Return one that goes on by itself from here."""
        other = Timeline()
        other.spans = self.spans.copy()
        return other

    def add(self, chain: str, began: float, ended: float) -> None:
        """Take one more stretch; what the same chain was said to do before is not counted again."""
        before = next((span for span in reversed(self.spans[-AT_ONCE:]) if span.chain == chain), None)
        began = began if before is None else max(began, before.ended)
        if ended <= began:
            return
        self.spans.append(Span(chain, began, ended, ended - began))
        bins = MOST_SPANS // 2
        while len(self.spans) > MOST_SPANS or (bins < MOST_SPANS // 2 and len(self.spans) > MOST_SPANS * 3 // 4):
            self.spans = coarse(self.spans, bins)
            bins //= 2


def coarse(spans: Sequence[Span], bins: int) -> list[Span]:
    """Return stretches of which those shorter than a bin, of `bins` over the whole time, are put together by bin."""
    if not spans:
        return []
    first = min(span.began for span in spans)
    width = (max(span.ended for span in spans) - first) / max(bins, 1)
    kept: list[Span] = []
    open_bins: dict[int, int] = {}
    for span in sorted(spans, key=lambda s: s.began):
        place = int((span.began - first) / width)
        if span.ended - span.began >= width:
            kept.append(span)
        elif (there := open_bins.get(place)) is None:
            open_bins[place] = len(kept)
            kept.append(span)
        else:
            other = kept[there]
            name = span.chain if span.chain == other.chain else ""
            kept[there] = Span(name, other.began, max(other.ended, span.ended), other.busy + span.busy)
    return kept
