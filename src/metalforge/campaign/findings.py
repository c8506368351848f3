r"""What a campaign has found so far, from its journal: results with evidence, and every look at what its target is for.

Results are made of rows by the theory's `Analysis`.

The target's error is also what decides which system gets more work. With `budget.target_of = "first"` it is that of the
first system. With "infinite" it is the extrapolation of the systems on one line (`analysis.finite_size`):
limit = sum_i c_i peak_i, so that

    sigma^2 = sum_i c_i^2 sigma_i^2,     - d sigma^2 / d work_i = c_i^2 sigma_i^2 / work_i

where work_i is the work of its updates and sigma_i^2 falls as 1 / work_i; that the c_i change meanwhile makes no
difference to first order, since they minimise sigma^2.

Whether a target error is reached is decided from all looks at a campaign. A bootstrap error scatters by some percent
from look to look, and whoever stops at the first look whose error is below the target selects one
that came out too small: on an exact model quoted errors were then 0.66 to 0.82 of the true ones. The error that decides
is therefore a fit through all looks i,

    sigma = a n^(-1/2),     ln a = sum_i w_i (ln sigma_i + ln(n_i) / 2) / sum_i w_i,     w_i = n_i,

n_i the effective samples that carried the peak then: later looks hold what earlier ones held, and more. The error of
the last look, which is the one that is quoted, must be below the target as well, and all evidence must hold at two
looks in a row.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import exp, log, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from metalforge.core import Observation

from .analysis.evidence import Finding, PlannedPoints, finding_of
from .analysis.selection import observe
from .chain_log import ChainLog, series_of
from .spec import CampaignSpec, on_the_line
from .state import CampaignState
from .steerers import find_steerer
from .store.records import Estimated
from .theory import SizeLaw, System

if TYPE_CHECKING:
    from .analysis.finite_size import FiniteSizeFit

REPLICAS = 200
"""Bootstrap replicas of every estimate, while a campaign runs and when it is over: errors are then known to 5 %."""
OTHERS = 0.25
"""Work that every other system gets for one of the first, where the target is for the first."""
ERROR_ITEM = "error of the curve"
"""The item of evidence that a curve is as good as the target wants it."""
IN_A_ROW = 2
"""Looks in a row at which all evidence must hold."""


class Analysis:
    """Makes results of rows: here the peak of a susceptibility, by reweighting all chains of a system together.

    A theory with another target has its own `rows`, `judged`, `more` and `observer`. What `judged` returns has
    `established`, `evidence`, `value`, `error` and `said`: whether the result may be quoted, what it rests on, the
    coordinate of what was looked for with its error (None where it has none, or is not located), and words.
    """

    def observer(self, spec: CampaignSpec, chain: ChainLog) -> Callable[[], Observation | None]:
        """Take what a chain has measured in its complete visits; return what makes of it what a steerer is told."""
        return partial(observe, series_of(spec.theory, chain, complete=True), id=chain.id, cost=float(chain.complete))

    def rows(self, state: CampaignState, system: System) -> Sequence[Any]:
        """Return what the chains of a system have measured."""
        return state.points(system)

    def judged(self, spec: CampaignSpec, rows: Sequence[Any], plan: PlannedPoints) -> Any:
        """Return what these rows say."""
        return finding_of(rows, plan, seed=spec.seed, n_bootstrap=REPLICAS)

    def more(self, found: Any, rows: Sequence[Any]) -> dict[str, Any]:
        """Return the fields of an estimate that only this kind of target has, `effective` at least."""
        peak = found.transition
        known = {"wants": found.wants, "overlap": found.overlap, "crossings": found.crossings}
        if peak is None:
            return known
        return known | {"height": peak.height, "effective": peak.n_effective, "width": peak.width}

    def find(self, state: CampaignState, system: System) -> Any:
        """Return what the chains of a system say."""
        return self.judged(state.spec, self.rows(state, system), plan_of(state, system))

    def estimator(self, state: CampaignState, system: System) -> Callable[[int], Estimated] | None:
        """Take what a system has measured; return what estimates it after so many updates. None: there is nothing."""
        rows = self.rows(state, system)
        return partial(self._estimated, state.spec, system, rows, plan_of(state, system)) if rows else None

    def _estimated(
        self, spec: CampaignSpec, system: System, rows: Sequence[Any], plan: PlannedPoints, trajectories: int
    ) -> Estimated:
        found = self.judged(spec, rows, plan)
        return Estimated(
            system=system,
            trajectories=trajectories,
            result=found.value,
            error=found.error,
            reason=found.said,
            established=found.established,
            evidence=found.evidence,
            **self.more(found, rows),
        )


def plan_of(state: CampaignState, system: System) -> PlannedPoints:
    """Return how many points of a system the campaign looks at first, and how many have a complete visit.

    They are those that were asked for by name, and as many others as the steerer begins with.
    """
    spec = state.spec
    first = find_steerer(spec.steering.steerer).first_points(spec.scan(system))
    visited = {
        chain.coordinate for chain in state.chains.values() if chain.system == system and chain.ends and chain.measured
    }
    named = set(spec.steering.points)
    return PlannedPoints(first + len(named), min(len(visited - named), first) + len(visited & named))


def finding(state: CampaignState, system: System, *, n_bootstrap: int = REPLICAS) -> Finding:
    """Return the peak of a volume with its evidence."""
    return finding_of(state.points(system), plan_of(state, system), seed=state.spec.seed, n_bootstrap=n_bootstrap)


class PrecisionLook(NamedTuple):
    """The precision of a result after some updates of all chains; without a peak there is no error."""

    error: float | None
    effective: float
    established: bool
    trajectories: int = 0


def fitted_error(looks: Sequence[PrecisionLook]) -> float | None:
    """Return the error at the last look by the fit through all looks that located the peak; None without any."""
    located = [(look.error, look.effective) for look in looks if look.error and look.effective > 0]
    if not located or looks[-1].error is None:
        return None
    weight = sum(n for _, n in located)
    log_a = sum(n * (log(error) + log(n) / 2) for error, n in located) / weight
    return exp(log_a) / sqrt(located[-1][1])


def target_reached(looks: Sequence[PrecisionLook], target: float) -> bool:
    """Return whether the campaign may end: evidence at the last looks, and fitted and last error below the target."""
    if len(looks) < IN_A_ROW or not all(look.established for look in looks[-IN_A_ROW:]):
        return False
    fitted, last = fitted_error(looks), looks[-1].error
    return fitted is not None and last is not None and max(fitted, last) <= target


def target_met(state: CampaignState) -> bool:
    """Return whether the campaign has reached its target error; without a target it never has."""
    target = state.spec.budget.target_error
    return target is not None and target_reached(target_looks(state), target)


def target_looks(state: CampaignState) -> list[PrecisionLook]:
    """Return every look at what the target is for, in order."""
    first = state.spec.theory.systems[0]
    if state.spec.budget.target_of == "first":
        own = [e for e in state.estimates if e.system == first]
        return [PrecisionLook(e.error, e.effective, _but_for_error(e), e.trajectories) for e in own]
    wanted = on_the_line(state.spec)
    latest: dict[System, Estimated] = {}
    looks = []
    for e in state.estimates:
        if e.system in wanted:
            latest[e.system] = e
        # Systems are estimated in turn: a look is complete with the last of them.
        if e.system == wanted[-1] and len(latest) == len(wanted):
            looks.append(_combined(state.spec, latest, e.trajectories))
    return looks


def _but_for_error(e: Estimated) -> bool:
    """Return whether all evidence holds except the target error of a curve, which is compared over several looks."""
    lacking = [item.name for item in e.evidence if not item.holds]
    return e.established or lacking == [ERROR_ITEM]


def _combined(spec: CampaignSpec, latest: Mapping[System, Estimated], trajectories: int) -> PrecisionLook:
    """Return the extrapolation of the last estimates as one look.

    It is established when its systems are and nothing contradicts their line. Its effective samples n are those with
    sigma^2 = sum_i v_i and v_i ~ 1 / n_i: n = sum_i v_i / sum_i (v_i / n_i), which doubles when all n_i do.
    """
    fit = _line(latest.values(), spec.theory.size_law)
    if fit is None:
        return PrecisionLook(None, 0.0, False, trajectories)
    used = [latest[system] for system in fit.systems]
    terms = [v / e.effective for v, e in zip(fit.variances, used, strict=True) if e.effective > 0]
    return PrecisionLook(
        fit.error,
        sum(fit.variances) / sum(terms) if len(terms) == len(used) else 0.0,
        fit.consistent and all(e.established for e in latest.values()),
        trajectories,
    )


def _line(estimates: Iterable[Estimated], law: SizeLaw | None) -> "FiniteSizeFit | None":
    """Return the line through the peaks of these estimates; None without one."""
    from .analysis.finite_size import SystemPeak, extrapolate

    peaks = [SystemPeak(e.system, e.result, e.error) for e in estimates if e.result is not None and e.error]
    return extrapolate(peaks, law)[0] if peaks and law is not None else None


def gains(state: CampaignState) -> dict[System, float]:
    """Return by system what more work there is worth: gain / work orders systems, the largest first.

    For the first system these are fixed shares: every other one gets a quarter of its work. For the infinite one they
    are c_i^2 sigma_i^2; a system that may take part and is not located comes before all others, and one that does not
    scale gets nothing beyond its first points.
    """
    systems, law = state.spec.theory.systems, state.spec.theory.size_law
    if state.spec.budget.target_of == "first" or law is None:
        return {system: 1.0 if system == systems[0] else OTHERS for system in systems}
    wanted = on_the_line(state.spec)
    latest = [found for system in wanted if (found := state.latest(system)) is not None]
    fit = _line(latest, law)
    terms = {} if fit is None else dict(zip(fit.systems, fit.variances, strict=True))
    located = {found.system for found in latest if found.result is not None and found.error}
    return {
        system: terms.get(system, 0.0) if system in located or system not in wanted else float("inf")
        for system in systems
    }
