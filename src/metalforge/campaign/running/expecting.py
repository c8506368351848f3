r"""Where a volume's peak is expected before it has been located there: a decision of the journal that places visits.

Whoever knows it best says so, and each is asked again only until somebody better has spoken:

    scout               a smaller volume of this campaign with a peak, moved by the difference that the curve has
    head:PEAK           the head's readings of this volume's first chains, with the curve, weighed by their variances
    rule:transition     the curve alone, which knows the extents

or nobody. A theory may have no such curve: then there are scouts alone. The prior places updates
(`steerers.peak_prior`): estimates, evidence and the stop rule never read it. A resumed campaign takes it from the
journal, as it takes visits.
"""

from collections.abc import Iterator, Mapping
from math import hypot, prod
from typing import Any, NamedTuple

from metalforge.campaign.report.words import system_name
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import PEAK_PRIOR, CampaignState
from metalforge.campaign.steerers import find_steerer
from metalforge.campaign.steerers.peak_prior import PeakPrior
from metalforge.campaign.store.records import BY_HEAD, Decided
from metalforge.campaign.theory import System
from metalforge.core import PEAK_HEAD, Advisor, ExpectedPeak, PeakPlace
from metalforge.statistics import with_error

HEAD = PEAK_HEAD
RULE, READ, SCOUT, SURE, USER = "rule:transition", f"{BY_HEAD}{HEAD}", "scout", "scout:established", "user"
ORDER = (RULE, READ, SCOUT, SURE, USER)
"""Who speaks, the best last."""
STEERER = "conductor"
"""The steerer that follows the head."""


class _Said(NamedTuple):
    mean: float
    width: float
    by: str
    reason: str
    baseline: float | None = None


class PeakPriors:
    """Says where the peaks of a campaign's systems are expected."""

    def __init__(self, spec: CampaignSpec, advisor: Advisor | None = None) -> None:
        self._spec, self._advisor = spec, advisor

    def news(self, state: CampaignState, system: System) -> Decided | None:
        """Return what is known of a volume's peak now and is better than what the journal has; None: nothing is."""
        known = state.expected(system)
        rank = -1 if known is None else ORDER.index(known.by)
        if (said := next(self._sources(state, system), None)) is None or ORDER.index(said.by) <= rank:
            return None
        headed = said.by == READ
        return Decided(
            what=PEAK_PRIOR,
            system=system,
            by=said.by,
            value=said.mean,
            width=said.width,
            baseline=said.baseline,
            reason=said.reason,
            head=HEAD if headed else "",
            trusted=True if headed else None,
            done=f"visits are placed about {with_error(said.mean, said.width)}",
        )

    def _sources(self, state: CampaignState, system: System) -> Iterator[_Said]:
        """Give what can be said of a volume, the best first."""
        spec = self._spec
        if spec.steering.prior == "off" or not find_steerer(spec.steering.steerer).expects:
            return
        begun = any(visit.system == system for visit in state.visits)
        if isinstance(spec.steering.prior, tuple):
            if not begun:
                yield _Said(*spec.steering.prior, USER, "said by the user")
            return
        curve = spec.theory.expected(system)
        yield from self._scouts(state, system, curve)
        if curve is None:
            return
        yield from self._readings(state, system, curve)
        if not begun and self._within(curve):
            yield _Said(curve.mean, curve.error, RULE, f"the transition curve ({curve.source})", curve.mean)

    def _within(self, curve: ExpectedPeak) -> bool:
        """Return whether a peak where the curve has it would be in the range."""
        low, high = self._spec.theory.low, self._spec.theory.high
        return PeakPrior((curve.mean - low) / (high - low), curve.error / (high - low)).is_followed

    def _scouts(self, state: CampaignState, system: System, curve: ExpectedPeak | None) -> Iterator[_Said]:
        for scout in scouts_of(self._spec, system):
            look = state.last_look(scout)
            if look is None or look.result is None or look.error is None or not _speaks(self._spec, state, scout):
                continue
            known = self._spec.theory.expected(scout)
            shift = 0.0 if curve is None or known is None else curve.mean - known.mean
            # The shift is known no better than it is large; without a curve, or where the evidence lacks something,
            # the scout's peak may be off by a part of its own breadth.
            doubt = abs(shift) if curve is not None and look.established else look.width / 2
            width = hypot(look.error, doubt)
            has = f"{self._spec.theory.words.coordinate} = {with_error(look.result, look.error)}"
            reason = f"{system_name(scout)} has its peak at {has}, moved by {shift:+.4f}"
            yield _Said(look.result + shift, width, SURE if look.established else SCOUT, reason, curve and curve.mean)

    def _readings(self, state: CampaignState, system: System, curve: ExpectedPeak) -> Iterator[_Said]:
        if self._advisor is None or self._spec.steering.steerer != STEERER:
            return
        chains: list[Any] = [c for c in state.chains.values() if c.system == system and c.complete and not c.abandoned]
        found = self._advisor.advise(PeakPlace(curve, chains))
        if found is not None and found.trusted and found.value is not None and found.error is not None:
            yield _Said(found.value, found.error, READ, found.reason, found.baseline)


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


def _speaks(spec: CampaignSpec, state: CampaignState, scout: System) -> bool:
    """Return whether a scout has visited its first points: peaks of fewer come and go."""
    done = {c.coordinate for c in state.chains.values() if c.system == scout and c.complete and not c.abandoned}
    return len(done) >= spec.steering.initial
