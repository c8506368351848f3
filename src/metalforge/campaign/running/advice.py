r"""The advisor of a campaign, and what it and the transition curve say before visits are placed.

`PeakPriors` say where a volume's peak is expected before it has been located there: a decision of the journal that
places visits. Whoever knows it best says so, and each is asked again only until somebody better has spoken:

    scout               a smaller volume of this campaign with a peak, moved by the difference that the curve has
    head:PEAK           the head's readings of this volume's first chains, with the curve, weighed by their variances
    rule:transition     the curve alone, which knows the extents

or nobody. A theory may have no such curve: then there are scouts alone. The prior places updates
(`steerers.peak_prior`): estimates, evidence and the stop rule never read it. A resumed campaign takes it from the
journal, as it takes visits.
"""

import hashlib
from collections.abc import Iterator, Mapping
from math import hypot, prod
from pathlib import Path
from typing import Any

import msgspec

from metalforge.campaign.orderings import AUTO, ORDERINGS
from metalforge.campaign.report.words import system_name
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import PEAK_PRIOR, CampaignState
from metalforge.campaign.steerers import find_steerer
from metalforge.campaign.steerers.peak_prior import PeakPrior
from metalforge.campaign.store.records import BY_HEAD, Assigned, Decided
from metalforge.campaign.theory import System
from metalforge.core import (
    PEAK_HEAD,
    Advisor,
    ChainPlace,
    CheapLength,
    ExpectedPeak,
    PeakPlace,
    SpecError,
    opened,
    read_bytes,
    replacing,
)
from metalforge.statistics import with_error

from .book import Book
from .orders import Answer, Hear, pass_over

PROFILE = "akd1000-published"
"""The emulated device of `screening.device = "npu"`."""
KEPT = "weights.safetensors"
"""The copy of a user's weights in a campaign's directory."""
WEIGHTS = "weights"
"""The decision that names them."""
CHEAP = "cheap-length"
HEAD = PEAK_HEAD
RULE, READ, SCOUT, SURE, USER = "rule:transition", f"{BY_HEAD}{HEAD}", "scout", "scout:established", "user"
ORDER = (RULE, READ, SCOUT, SURE, USER)
"""Who speaks, the best last."""
STEERER = "conductor"
"""The steerer that follows the head."""


def on_device(spec: CampaignSpec) -> bool:
    """Return whether the network of a campaign runs on the device: one that tries all orderings has a screen."""
    screens = spec.theory.screened and (spec.ordering == AUTO or ORDERINGS[spec.ordering].screens)
    return spec.screening.device == "npu" and screens


def open_advisor(spec: CampaignSpec, directory: Path, book: Book) -> Advisor | None:
    """Return the advisor of a campaign; None where its theory has none. A user's weights are copied to the campaign."""
    given = spec.screening.weights
    weights = _kept_weights(Path(given), directory, book) if given else None
    return spec.theory.advisor(profile=PROFILE if on_device(spec) else "", weights=weights)


def _kept_weights(path: Path, directory: Path, book: Book) -> Path:
    """Return the campaign's own copy of weights, which must be the one it began with."""
    kept = directory / KEPT
    if not kept.exists():
        with opened(path) as (stream, _), replacing(kept) as copy:
            copy.write(stream.read())
    sha256 = f"sha256 {hashlib.sha256(read_bytes(kept)).hexdigest()}"
    known = next((d.reason for d in book.state.decisions if d.what == WEIGHTS), None)
    if known is None:
        book.write(Decided(what=WEIGHTS, by="user", reason=sha256))
    elif known != sha256:
        raise SpecError(f"{kept}: not the weights that the campaign began with ({known})\nhint: put the file back")
    return kept


def observer(advisor: Advisor | None, book: Book) -> Hear:
    """Return what tells an advisor the rows of every chain, with those before where it was taken up."""
    if advisor is None:
        return pass_over

    def hear(answer: Answer) -> None:
        for block in answer.blocks:
            if not block.took:
                advisor.observe(block.chain, block.segments)
                continue
            with book.reading() as state:
                known = state.chains[block.chain]
                past = list(known.segments())
            place = ChainPlace(known.system, known.coordinate, known.start)
            advisor.observe(block.chain, [*past, *block.segments], place)

    return hear


def note_heads(book: Book, advisor: Advisor | None) -> None:
    """Write once, for every head, whether it is acted on, and why not."""
    if advisor is not None and not book.state.heads:
        for head in advisor.standings:
            book.write(Decided(what="head", by=head.name, reason=head.reason, value=head.skill, trusted=head.acts))


class CheapLengths:
    """Says with how many cheaper updates a new chain begins, by the advisor where that is trusted, with notes on it.

    Everything is read from the journal, so that a round which is planned again comes out the same.
    """

    def __init__(self, most: int, advisor: Advisor) -> None:
        self._most, self._advisor = most, advisor
        self._notes: dict[int, Decided] = {}

    def cheap(self, state: CampaignState, place: ChainPlace, usual: int, visit: int) -> int:
        """Return the cheaper updates of a new chain that would usually have so many."""
        there = [c for c in state.chains.values() if (c.system, c.start) == (place.system, place.start)]
        alike: list[Any] = [chain for chain in there if not chain.abandoned]
        found = self._advisor.advise(CheapLength(place, usual, self._most, alike))
        if found is None or found.value is None:
            return usual
        self._notes[visit] = Decided(
            what=CHEAP,
            by=f"{BY_HEAD}{found.head}" if found.trusted else "rule:spec",
            reason=found.reason,
            value=found.value,
            baseline=found.baseline,
            trusted=found.trusted,
            head=found.head,
        )
        return int(found.value) if found.trusted else usual

    def notes(self, visit: Assigned) -> list[Decided]:
        """Return what is to be written beside a visit, once."""
        note = self._notes.pop(visit.visit, None)
        if note is None:
            return []
        made, said, usual = visit.cheap, note.value, note.baseline
        if note.trusted and said is not None and usual is not None and made < said:
            # The budget cut the visit, and would have cut that of the baseline.
            note = msgspec.structs.replace(note, value=float(made), baseline=min(usual, float(made)))
        return [msgspec.structs.replace(note, chain=visit.chain, done=f"{made} updates")]


class PeakPriors:
    """Says where the peaks of a campaign's systems are expected."""

    def __init__(self, spec: CampaignSpec, advisor: Advisor | None = None) -> None:
        self._spec, self._advisor = spec, advisor

    def news(self, state: CampaignState, system: System) -> Decided | None:
        """Return what is known of a volume's peak now and is better than what the journal has; None: nothing is."""
        known = state.expected(system)
        rank = -1 if known is None else ORDER.index(known.by)
        said = next(self._sources(state, system), None)
        return None if said is None or ORDER.index(said.by) <= rank else said

    def _sources(self, state: CampaignState, system: System) -> Iterator[Decided]:
        """Give what can be said of a volume, the best first."""
        spec = self._spec
        if spec.steering.prior == "off" or not find_steerer(spec.steering.steerer).expects:
            return
        begun = any(visit.system == system for visit in state.visits)
        if isinstance(spec.steering.prior, tuple):
            if not begun:
                yield _said(system, *spec.steering.prior, USER, "said by the user")
            return
        curve = spec.theory.expected(system)
        yield from self._scouts(state, system, curve)
        if curve is None:
            return
        if self._advisor is not None and spec.steering.steerer == STEERER:
            chains: list[Any] = [c for c in state.chains.values() if c.system == system]
            told = [c for c in chains if c.complete and not c.abandoned]
            found = self._advisor.advise(PeakPlace(curve, told))
            if found is not None and found.trusted and found.value is not None and found.error is not None:
                yield _said(system, found.value, found.error, READ, found.reason, found.baseline)
        low, size = spec.theory.low, spec.theory.high - spec.theory.low
        if not begun and PeakPrior((curve.mean - low) / size, curve.error / size).is_followed:  # it is in the range
            yield _said(system, curve.mean, curve.error, RULE, f"the transition curve ({curve.source})", curve.mean)

    def _scouts(self, state: CampaignState, system: System, curve: ExpectedPeak | None) -> Iterator[Decided]:
        for scout in scouts_of(self._spec, system):
            look = state.last_look(scout)
            # Until a scout has visited its first points its peak comes and goes.
            done = {c.coordinate for c in state.chains.values() if c.system == scout and c.complete and not c.abandoned}
            if look is None or look.result is None or look.error is None or len(done) < self._spec.steering.initial:
                continue
            known = self._spec.theory.expected(scout)
            shift = 0.0 if curve is None or known is None else curve.mean - known.mean
            # The shift is known no better than it is large; without a curve, or where the evidence lacks something,
            # the scout's peak may be off by a part of its own breadth.
            doubt = abs(shift) if curve is not None and look.established else look.width / 2
            has = f"{self._spec.theory.words.coordinate} = {with_error(look.result, look.error)}"
            reason = f"{system_name(scout)} has its peak at {has}, moved by {shift:+.4f}"
            by, width = SURE if look.established else SCOUT, hypot(look.error, doubt)
            yield _said(system, look.result + shift, width, by, reason, curve and curve.mean)


def _said(system: System, mean: float, width: float, by: str, reason: str, baseline: float | None = None) -> Decided:
    headed = by == READ
    return Decided(
        what=PEAK_PRIOR,
        system=system,
        by=by,
        value=mean,
        width=width,
        baseline=baseline,
        reason=reason,
        head=HEAD if headed else "",
        trusted=True if headed else None,
        done=f"visits are placed about {with_error(mean, width)}",
    )


def scouts_of(spec: CampaignSpec, system: System) -> list[System]:
    """Return the smaller systems of a campaign on the same line, the largest first."""
    theory, law = spec.theory, spec.theory.size_law
    if law is None:
        return []
    alike = [other for other in theory.systems if law.family(other) == law.family(system)]
    smaller = [other for other in alike if prod(other) < prod(system)]
    return sorted(smaller, key=prod, reverse=True)


def waits_for_scouts(spec: CampaignSpec, system: System, visits: Mapping[System, int]) -> bool:
    """Return whether a volume had better begin later: smaller ones have not had their first points yet."""
    if spec.steering.prior != "auto" or not find_steerer(spec.steering.steerer).expects:
        return False
    return any(visits.get(scout, 0) < spec.steering.initial for scout in scouts_of(spec, system))
