"""What a campaign found, derived again from its journal alone: the numbers of the report, `replay` and `--json`.

A pure function of the state: no clock, and the bootstrap's seed is the spec's. So the end of a scan, a replay and a
report written next year give the same digits.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from metalforge.campaign.findings import finding, plan_of, plasma_finding, trajectories_of
from metalforge.campaign.physics.evidence import NOT_APPLICABLE, Evidence, Finding
from metalforge.campaign.physics.finite_size import FiniteSize, FiniteSizeFit, analyse_volumes
from metalforge.campaign.physics.freezing import FreezingFinding
from metalforge.campaign.physics.transition import Transition
from metalforge.campaign.physics.transport import TransportFinding
from metalforge.campaign.spec import Dims
from metalforge.campaign.state import CampaignState, Drift
from metalforge.campaign.store.records import EnergySpent, StoppedBy
from metalforge.lattice.registered import Value

from .decisions import Decisions, FaultNote, ResultPart, decisions_of, faults_of
from .heads import HeadAccount, accounts_of, answers_of
from .points import ChainResult, chain_results
from .words import item_text, lattice_name


class VolumeResult(ResultPart, frozen=True, kw_only=True):
    """beta_c of one volume with its evidence; `reason` says why it is not located or not established."""

    dims: Dims
    transition: Transition | None
    reason: str
    established: bool
    evidence: tuple[Evidence, ...]
    chains: int
    measured: int

    @property
    def beta_c(self) -> "BetaC":
        """The number for a script."""
        return _beta_c(self.transition, self.evidence)


class CampaignResult(ResultPart, frozen=True, kw_only=True):
    """All that is computed from a campaign's state; `seconds` is wall time of the compute."""

    observable: str
    """The order parameter whose susceptibility is located, or what is looked at of particles: a name of `ORDERS`."""
    volumes: tuple[VolumeResult, ...]
    finite_size: FiniteSize | None
    seconds: float
    updates_per_second: float
    effective_per_second: float
    chains: tuple[ChainResult, ...]
    decisions: Decisions
    heads: dict[str, HeadAccount]
    answers: dict[str, int] | None
    """Of the worker that reads the heads: how many were asked for, late, lost; None where nobody counted."""
    energy: tuple[EnergySpent, ...]
    drift: tuple[Drift, ...]
    recomputed: bool
    """The journal is from before there was evidence: its verdict was computed now, by the rules of now."""
    digest: str
    transport: tuple[TransportFinding, ...] = ()
    """Of a campaign that maps a plasma: what the trajectories of each box say."""
    freezing: tuple[FreezingFinding, ...] = ()
    """Of one that looks for its freezing."""

    def __repr__(self) -> str:
        """Return how much it holds; its fields are the numbers."""
        kind = "established" if self.established else "not established"
        return f"<CampaignResult: {len(self.volumes)} volumes, {len(self.chains)} chains, {kind}>"

    @property
    def headline(self) -> VolumeResult:
        """The volume that beta_c is quoted for, where there is no extrapolation."""
        return self.volumes[0]

    @property
    def of_plasma(self) -> tuple[TransportFinding | FreezingFinding, ...]:
        """What was found of each box; nothing for a campaign of lattices."""
        return (*self.transport, *self.freezing)

    @property
    def extrapolation(self) -> FiniteSizeFit | None:
        """beta_c of infinite volume, which is quoted where there are volumes enough."""
        return None if self.finite_size is None else self.finite_size.fit

    @property
    def quoted(self) -> Transition | FiniteSizeFit | None:
        """What the headline says: the extrapolation where there is one, else the peak of the first volume."""
        return self.extrapolation or self.headline.transition

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """What the headline rests on."""
        return self.headline.evidence if self.extrapolation is None else self.line_evidence

    @property
    def established(self) -> bool:
        """Whether the headline may be quoted."""
        if self.transport or self.freezing:
            return self.headline.established
        return self.quoted is not None and all(item.holds for item in self.evidence)

    @property
    def line_evidence(self) -> tuple[Evidence, ...]:
        """What the extrapolation rests on: that each of its volumes is established, and that they are on one line."""
        if (fit := self.extrapolation) is None:
            return ()
        used = [volume for volume in self.volumes if volume.dims in fit.volumes]
        return (
            *(
                Evidence(
                    name=f"beta_c of {lattice_name(volume.dims)}",
                    holds=volume.established,
                    value="established" if volume.established else "not established",
                    needed=None,
                    text=volume.reason,
                )
                for volume in used
            ),
            Evidence(
                name="chi2 of the line",
                holds=fit.consistent,
                value=fit.chi2 if fit.dof else NOT_APPLICABLE,
                needed=fit.largest_chi2 if fit.dof else None,
                at_most=True,
                text="" if fit.dof else "two volumes determine the line",
            ),
        )


class BetaC(ResultPart, frozen=True, kw_only=True):
    """beta_c and its error, None where nothing could be located; `reason` says why it is not established."""

    value: float | None
    error: float | None
    reason: str | None


class VolumeSummary(ResultPart, frozen=True, kw_only=True):
    """One volume in the `--json` form."""

    dims: Dims
    beta_c: BetaC
    established: bool
    evidence: tuple[Evidence, ...]


class ChainSummary(ResultPart, frozen=True, kw_only=True):
    """One chain in the `--json` form, with the means of what was measured besides."""

    id: str
    dims: Dims
    beta: float
    measured: int
    observables: dict[str, Value]


class InfiniteVolume(ResultPart, frozen=True, kw_only=True):
    """beta_c of infinite volume in `--json`: from which volumes, how well they fit, and what to be careful about."""

    value: float | None = None
    error: float | None = None
    chi2: float | None = None
    dof: int | None = None
    volumes: tuple[Dims, ...] = ()
    reason: str
    established: bool = False
    evidence: tuple[Evidence, ...] = ()


class CampaignSummary(ResultPart, frozen=True, kw_only=True):
    """The `--json` form of a campaign; `beta_c` is the headline: of infinite volume, or of the first volume.

    `recomputed` says that the journal is from before there was evidence: its verdict was computed now.
    """

    beta_c: BetaC
    established: bool
    evidence: tuple[Evidence, ...]
    volumes: tuple[VolumeSummary, ...]
    infinite_volume: InfiniteVolume | msgspec.UnsetType = msgspec.UNSET
    recomputed: bool
    trajectories: int
    seconds: float
    stopped_by: StoppedBy | None
    substrates: tuple[str, ...]
    energy: tuple[EnergySpent, ...]
    heads: dict[str, HeadAccount]
    answers: dict[str, int] | None
    faults: tuple[FaultNote, ...]
    """Blocks that were thrown away, and what came of them."""
    transport: tuple[TransportFinding, ...] | msgspec.UnsetType = msgspec.UNSET
    """Of a campaign that maps a plasma: points, the curve through them, the evidence, by box."""
    freezing: tuple[FreezingFinding, ...] | msgspec.UnsetType = msgspec.UNSET
    """Of one that looks for its freezing; `beta_c` is ln Gamma_m then."""
    chains: tuple[ChainSummary, ...] | msgspec.UnsetType = msgspec.UNSET
    """Where more was measured than every chain has: the means of that."""
    report: str | None


def findings_of(state: CampaignState) -> dict[Dims, Finding]:
    """Return the peak of every volume with its evidence: the one bootstrap that a result and its figures rest on.

    Particles have no peak: what there is of them is `plasma_findings`, and is found quickly.
    """
    if state.spec.lattice is None:
        found = plasma_findings(state)
        return {
            dims: Finding(transition=None, reason=one.said, evidence=one.evidence)
            for dims, one in zip(state.spec.theory.systems, found, strict=True)
        }
    return {dims: finding(state, dims) for dims in state.spec.theory.systems}


def plasma_findings(state: CampaignState) -> list[TransportFinding | FreezingFinding]:
    """Return what the trajectories of every box say; nothing for a campaign of lattices."""
    if state.spec.lattice is not None:
        return []
    return [
        plasma_finding(state.spec, trajectories_of(state, dims), plan_of(state, dims))
        for dims in state.spec.theory.systems
    ]


def result_of(state: CampaignState, found: Mapping[Dims, Finding] | None = None) -> CampaignResult:
    """Return what the journal says that the campaign found; `found` is what `findings_of` gives, if it is there."""
    found = found or findings_of(state)
    chains = chain_results(state, found)
    ended = state.finished is not None or state.interruption is not None
    seconds = state.seconds if ended else state.elapsed(state.last_at)
    effective = sum(chain.effective for chain in chains if not chain.abandoned)
    volumes = tuple(_volume(state, dims, found[dims]) for dims in state.spec.theory.systems)
    of_plasma = plasma_findings(state)
    if of_plasma:
        volumes = tuple(
            msgspec.structs.replace(volume, established=one.established)
            for volume, one in zip(volumes, of_plasma, strict=True)
        )
    return CampaignResult(
        observable=_observable(state),
        volumes=volumes,
        finite_size=_finite_size(volumes),
        seconds=seconds,
        updates_per_second=state.trajectories / seconds if seconds > 0 else 0.0,
        effective_per_second=effective / seconds if seconds > 0 else 0.0,
        chains=chains,
        decisions=decisions_of(state),
        heads=accounts_of(state),
        answers=answers_of(state),
        energy=tuple(
            msgspec.convert(entry, EnergySpent, from_attributes=True) for _, entry in sorted(state.energy.items())
        ),
        drift=tuple(sorted(state.drift.values())),
        recomputed=bool(state.estimates) and not any(estimate.evidence for estimate in state.estimates),
        digest=state.digest(),
        transport=tuple(one for one in of_plasma if isinstance(one, TransportFinding)),
        freezing=tuple(one for one in of_plasma if isinstance(one, FreezingFinding)),
    )


def _observable(state: CampaignState) -> str:
    if state.spec.lattice is not None:
        return state.spec.lattice.order
    return "freezing" if state.spec.theory.target == "crossing" else "transport"


def summary_of(state: CampaignState, result: CampaignResult, report: Path | None = None) -> CampaignSummary:
    """Return the few numbers that a script wants."""
    more = () if state.spec.lattice is None else state.spec.lattice.also_measure
    return CampaignSummary(
        beta_c=_crossing(result) if result.freezing else _beta_c(result.quoted, result.evidence),
        established=result.established,
        evidence=result.evidence,
        volumes=msgspec.convert(result.volumes, tuple[VolumeSummary, ...], from_attributes=True),
        infinite_volume=_infinite(result) if len(result.volumes) > 1 else msgspec.UNSET,
        recomputed=result.recomputed,
        trajectories=state.trajectories,
        seconds=result.seconds,
        stopped_by=state.stopped_by,
        substrates=tuple(dict.fromkeys(silicon.name for silicon in state.opened.silicon)),
        energy=result.energy,
        heads=result.heads,
        answers=result.answers,
        faults=faults_of(state),
        transport=result.transport or msgspec.UNSET,
        freezing=result.freezing or msgspec.UNSET,
        chains=tuple(_chain(chain, more) for chain in result.chains) if more else msgspec.UNSET,
        report=None if report is None else str(report),
    )


def _chain(chain: ChainResult, names: tuple[str, ...]) -> ChainSummary:
    return ChainSummary(
        id=chain.id,
        dims=chain.dims,
        beta=chain.beta,
        measured=chain.measured,
        observables={name: chain.values[name] for name in names if name in chain.values},
    )


def _beta_c(found: Transition | FiniteSizeFit | None, evidence: tuple[Evidence, ...]) -> BetaC:
    value, error = (None, None) if found is None else (found.beta_c, found.error)
    return BetaC(value=value, error=error, reason=_lacking(evidence) or None)


def _crossing(result: CampaignResult) -> BetaC:
    """Return ln Gamma_m of the first box."""
    found = result.freezing[0]
    return BetaC(value=found.log_gamma, error=found.error, reason=_lacking(result.evidence) or None)


def _lacking(evidence: tuple[Evidence, ...]) -> str:
    return "; ".join(item_text(item) for item in evidence if not item.holds)


def _infinite(result: CampaignResult) -> InfiniteVolume:
    if result.finite_size is None:
        return InfiniteVolume(reason="no extrapolation: fewer than two volumes with one N_t are located")
    reason = "; ".join(result.finite_size.cautions)
    if (fit := result.extrapolation) is None:
        return InfiniteVolume(reason=reason)
    return InfiniteVolume(
        value=fit.beta_c,
        error=fit.error,
        chi2=fit.chi2,
        dof=fit.dof,
        volumes=fit.volumes,
        reason=reason,
        established=result.established,
        evidence=result.evidence,
    )


def _volume(state: CampaignState, dims: Dims, found: Finding) -> VolumeResult:
    chains = [chain for chain in state.chains.values() if chain.dims == dims]
    return VolumeResult(
        dims=dims,
        transition=found.transition,
        reason=_lacking(found.evidence),
        established=found.established,
        evidence=found.evidence,
        chains=len(chains),
        measured=sum(chain.measured for chain in chains),
    )


def _finite_size(volumes: tuple[VolumeResult, ...]) -> FiniteSize | None:
    """Return how the peak moves with the volume, where two volumes or more with one N_t are located."""
    peaks = [volume.transition for volume in volumes if volume.transition is not None]
    if len(peaks) < 2 or len({peak.dims[3] for peak in peaks}) > 1:
        return None
    return analyse_volumes(peaks)
