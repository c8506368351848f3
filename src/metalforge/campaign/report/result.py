"""What a campaign found, derived again from its journal alone: the numbers of the report, `replay` and `--json`.

A pure function of the state: no clock, and the bootstrap's seed is the spec's. So the end of a scan, a replay and a
report written next year give the same digits.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from metalforge.campaign.analysis.evidence import NOT_APPLICABLE, Evidence
from metalforge.campaign.analysis.transition import Transition
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.state import CampaignState, Drift
from metalforge.campaign.store.records import Decided, EnergySpent, StoppedBy
from metalforge.campaign.theory import System, Theory, TheoryWords

from .decisions import Decisions, ResultPart, decisions_of, faults_of
from .downloads import curves_of
from .heads import HeadAccount, accounts_of
from .points import ChainResult
from .words import item_text, system_name

if TYPE_CHECKING:
    from metalforge.campaign.analysis.curve import TransitionCurve
    from metalforge.campaign.analysis.finite_size import FiniteSize, FiniteSizeFit


class Quoted(ResultPart, frozen=True, kw_only=True):
    """What is quoted, by name, with its error; `reason` says why it is not located, or not established."""

    name: str
    label: str
    unit: str
    value: float | None
    error: float | None
    established: bool
    reason: str | None


class SystemResult(ResultPart, frozen=True, kw_only=True):
    """What is found of one system with its evidence; `reason` says why it is not located or not established.

    `transition` is the peak of a susceptibility, `details` what a theory with another target has found.
    """

    system: System
    result: Quoted
    transition: Transition | None
    details: Any
    said: str
    reason: str
    established: bool
    evidence: tuple[Evidence, ...]
    chains: int
    measured: int


class CampaignResult(ResultPart, frozen=True, kw_only=True):
    """All that is computed from a campaign's state; `seconds` is wall time of the compute."""

    words: TheoryWords
    name: str
    """What the result is called in files and lines of text."""
    order: str
    """The order parameter whose susceptibility is located, or what else is looked at, as it is written."""
    systems: tuple[SystemResult, ...]
    finite_size: "FiniteSize | None"
    limit: Quoted | None
    """The result of the infinite system, where there is an extrapolation."""
    limit_name: str
    """What the infinite system is called; empty where nothing is extrapolated."""
    seconds: float
    updates_per_second: float
    effective_per_second: float
    chains: tuple[ChainResult, ...]
    decisions: Decisions
    heads: dict[str, HeadAccount]
    energy: tuple[EnergySpent, ...]
    drift: tuple[Drift, ...]
    digest: str

    def __repr__(self) -> str:
        """Return how much it holds; its fields are the numbers."""
        kind = "established" if self.established else "not established"
        return f"<CampaignResult: {len(self.systems)} systems, {len(self.chains)} chains, {kind}>"

    @property
    def headline(self) -> SystemResult:
        """The system that the result is quoted for, where there is no extrapolation."""
        return self.systems[0]

    @property
    def extrapolation(self) -> "FiniteSizeFit | None":
        """The line to the infinite system, which is quoted where there are systems enough."""
        return None if self.finite_size is None else self.finite_size.fit

    @property
    def quoted(self) -> Quoted:
        """What the headline says: the extrapolation where there is one, else the first system."""
        return self.limit or self.headline.result

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """What the headline rests on."""
        return self.headline.evidence if self.extrapolation is None else self.line_evidence

    @property
    def established(self) -> bool:
        """Whether the headline may be quoted."""
        return self.quoted.established

    @property
    def line_evidence(self) -> tuple[Evidence, ...]:
        """What the extrapolation rests on: that each of its systems is established, and that they are on one line."""
        return () if (fit := self.extrapolation) is None else line_evidence(self.name, fit, self.systems)


def line_evidence(name: str, fit: "FiniteSizeFit", systems: tuple[SystemResult, ...]) -> tuple[Evidence, ...]:
    """Return what a line through the results of these systems rests on."""
    return (
        *(
            Evidence(
                name=f"{name} of {system_name(volume.system)}",
                holds=volume.established,
                value="established" if volume.established else "not established",
                needed=None,
                text=volume.reason,
            )
            for volume in systems
            if volume.system in fit.systems
        ),
        Evidence(
            name="chi2 of the line",
            holds=fit.consistent,
            value=fit.chi2 if fit.dof else NOT_APPLICABLE,
            needed=fit.largest_chi2 if fit.dof else None,
            at_most=True,
            text="" if fit.dof else "two systems determine the line",
        ),
    )


class Limit(ResultPart, frozen=True, kw_only=True):
    """The result of the infinite system in `--json`: from which, how well they fit, and what to be careful about."""

    name: str
    value: float | None = None
    error: float | None = None
    chi2: float | None = None
    dof: int | None = None
    systems: tuple[System, ...] = ()
    reason: str
    established: bool = False
    evidence: tuple[Evidence, ...] = ()


class CampaignSummary(ResultPart, frozen=True, kw_only=True):
    """The `--json` form of a campaign; `result` is the headline: of the infinite system, or of the first one."""

    result: Quoted
    evidence: tuple[Evidence, ...]
    systems: tuple[SystemResult, ...]
    infinite: Limit | msgspec.UnsetType = msgspec.UNSET
    trajectories: int
    seconds: float
    stopped_by: StoppedBy | None
    substrates: tuple[str, ...]
    energy: tuple[EnergySpent, ...]
    heads: dict[str, HeadAccount]
    faults: tuple[Decided, ...]
    """Blocks that were thrown away, and what came of them."""
    chains: tuple[ChainResult, ...] | msgspec.UnsetType = msgspec.UNSET
    """Where observables were asked for: their means are the `values` of every chain."""
    report: str | None


class Reported:
    """What one campaign's report, figures and numbers are made of, each computed from the state once."""

    def __init__(self, state: CampaignState) -> None:
        self.state = state
        """The fold of the journal."""

    @property
    def spec(self) -> CampaignSpec:
        """The spec in force, with every default."""
        return self.state.spec

    @cached_property
    def found(self) -> Mapping[System, Any]:
        """What the chains of every system say."""
        return findings_of(self.state)

    @cached_property
    def result(self) -> CampaignResult:
        """Every number of the report: systems, chains, decisions, energy."""
        return result_of(self.state, self.found)

    @cached_property
    def curves(self) -> "Mapping[System, TransitionCurve]":
        """The reweighted curves by system."""
        return curves_of(self.state)


def findings_of(state: CampaignState) -> dict[System, Any]:
    """Return what the chains of every system say: what a result and its figures rest on."""
    theory = state.spec.theory
    return {system: theory.analysis.find(state, system) for system in theory.systems}


def result_of(state: CampaignState, found: Mapping[System, Any] | None = None) -> CampaignResult:
    """Return what the journal says that the campaign found; `found` is what `findings_of` gives, if it is there."""
    found, theory = found or findings_of(state), state.spec.theory
    chains = theory.report.chains(state, found)
    ended = state.finished is not None or state.interruption is not None
    seconds = state.seconds if ended else state.elapsed(state.last_at)
    effective = sum(chain.effective for chain in chains if not chain.abandoned)
    systems = tuple(_volume(state, system, found[system]) for system in theory.systems)
    finite_size = _finite_size(theory, systems)
    fit, limit = None if finite_size is None else finite_size.fit, None
    if fit is not None:
        evidence = line_evidence(theory.result_name, fit, systems)
        limit = _quoted(theory, fit.result, fit.error, evidence)
    return CampaignResult(
        words=theory.words,
        name=theory.result_name,
        order=theory.order.text,
        systems=systems,
        finite_size=finite_size,
        limit=limit,
        limit_name=_limit_name(theory),
        seconds=seconds,
        updates_per_second=state.trajectories / seconds if seconds > 0 else 0.0,
        effective_per_second=effective / seconds if seconds > 0 else 0.0,
        chains=chains,
        decisions=decisions_of(state),
        heads=accounts_of(state),
        energy=tuple(
            msgspec.convert(entry, EnergySpent, from_attributes=True) for _, entry in sorted(state.energy.items())
        ),
        drift=tuple(found for _, found in sorted(state.drift.items())),
        digest=state.digest(),
    )


def summary_of(state: CampaignState, result: CampaignResult, report: Path | None = None) -> CampaignSummary:
    """Return the few numbers that a script wants."""
    return CampaignSummary(
        result=result.quoted,
        evidence=result.evidence,
        systems=result.systems,
        infinite=_infinite(state.spec.theory, result) if len(result.systems) > 1 else msgspec.UNSET,
        trajectories=state.trajectories,
        seconds=result.seconds,
        stopped_by=state.stopped_by,
        substrates=tuple(dict.fromkeys(silicon.name for silicon in state.opened.silicon)),
        energy=result.energy,
        heads=result.heads,
        faults=faults_of(state),
        chains=result.chains if state.spec.theory.observables else msgspec.UNSET,
        report=None if report is None else str(report),
    )


def _quoted(theory: Theory, value: float | None, error: float | None, evidence: tuple[Evidence, ...]) -> Quoted:
    """Return a value of the coordinate as it is quoted."""
    found = (None, error) if value is None or error is None else theory.quoted(value, error)
    held = all(item.holds for item in evidence)
    return Quoted(
        name=theory.result_name,
        label=theory.words.found,
        unit=theory.unit,
        value=found[0],
        error=found[1],
        established=held and error is not None,
        reason=_lacking(evidence) or None,
    )


def _lacking(evidence: tuple[Evidence, ...]) -> str:
    return "; ".join(item_text(item) for item in evidence if not item.holds)


def _limit_name(theory: Theory) -> str:
    return "" if theory.size_law is None else theory.size_law.limit


def _infinite(theory: Theory, result: CampaignResult) -> Limit:
    name = _limit_name(theory)
    if result.finite_size is None:
        return Limit(name=name, reason="no extrapolation: fewer than two systems of one family are located")
    reason = "; ".join(result.finite_size.cautions)
    if (fit := result.extrapolation) is None or result.limit is None:
        return Limit(name=name, reason=reason)
    return Limit(
        name=name,
        value=result.limit.value,
        error=result.limit.error,
        chi2=fit.chi2,
        dof=fit.dof,
        systems=fit.systems,
        reason=reason,
        established=result.established,
        evidence=result.evidence,
    )


def _volume(state: CampaignState, system: System, found: Any) -> SystemResult:
    chains = [chain for chain in state.chains.values() if chain.system == system]
    quoted = _quoted(state.spec.theory, found.value, found.error, found.evidence)
    transition = getattr(found, "transition", None)
    return SystemResult(
        system=system,
        result=msgspec.structs.replace(quoted, established=found.established),
        transition=transition,
        details=None if hasattr(found, "transition") else found,
        said=found.said,
        reason=_lacking(found.evidence),
        established=found.established,
        evidence=found.evidence,
        chains=len(chains),
        measured=sum(chain.measured for chain in chains),
    )


def _finite_size(theory: Theory, systems: tuple[SystemResult, ...]) -> "FiniteSize | None":
    """Return how the peak moves with the size, where two systems or more of one family are located."""
    peaks, law = [volume.transition for volume in systems if volume.transition is not None], theory.size_law
    if law is None or len(peaks) < 2 or len({law.family(peak.system) for peak in peaks}) > 1:
        return None
    from metalforge.campaign.analysis.finite_size import analyse_volumes

    return analyse_volumes(peaks, law)
