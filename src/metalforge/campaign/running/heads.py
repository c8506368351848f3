"""The shipped conductor in a campaign: which heads apply to its chains, which of them are trusted, and why not.

Heads were trained on hybrid Monte Carlo on small lattices. On other chains they are read and recorded, never acted on:
what they say there was not measured on held-out data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from metalforge.campaign.orderings import AUTO, arrange
from metalforge.campaign.report.words import lattice_name
from metalforge.campaign.spec import CampaignSpec, Dims
from metalforge.campaign.state import CampaignState, ChainLog
from metalforge.conductor.corpus_spec import CorpusSpec
from metalforge.conductor.early_stop import EarlyStop
from metalforge.conductor.features import ChainContext, MetaRow
from metalforge.conductor.reading import NetworkConductor
from metalforge.conductor.scores import HeadScore
from metalforge.conductor.shipped import default_scores, default_weights
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.device import NpuDevice
from metalforge.substrates.npu.emulator import EmulatedDevice
from metalforge.substrates.profiles import profile

PROFILE = "akd1000-published"
SOFTWARE, ON_NPU = "f32-software", "npu-w8a8"
"""Where the network can run, as `conductor evaluate` calls it."""
FEWEST = 20
"""Measured updates below which a chain says nothing about its coupling."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Heads:
    """The network, what each head is worth on held-out data, and why heads are not used."""

    weights: EsnWeights
    scores: tuple[HeadScore, ...]
    skill: Mapping[str, float]
    trusted: Mapping[str, bool]
    unused: Mapping[str, str]
    """Heads that do not apply to this campaign's chains, with the reason."""
    stop: EarlyStop
    """How the thermalisation head ends a warm-up, as it was chosen on training chains."""
    domain: str | None
    """Why no head is acted on here; None where the chains are of the kind they were trained on."""
    route: str = SOFTWARE
    """Where the network runs: the route whose scores count."""
    lost: dict[str, str] = field(default_factory=dict)
    """Heads that lost to their baselines while the campaign ran, and by how much."""

    def acts(self, head: str) -> bool:
        """Return whether a head's word is taken now."""
        applies = self.domain is None and head not in self.unused and head not in self.lost
        return applies and self.trusted.get(head, False)

    def why_not(self, head: str) -> str:
        """Return why a head that applies is not trusted."""
        if self.skill.get(head, 0.0) > 0:
            return f"skill {self.skill[head]:+.2f}, but its early stop was not shown to be unbiased"
        return "no skill on held-out couplings"

    def conductor(self, device: NpuDevice | None = None) -> NetworkConductor:
        """Return a conductor of its own for one thread."""
        return NetworkConductor(self.weights, device=device)


def load_heads(spec: CampaignSpec) -> Heads:
    """Return the shipped heads as they stand to a campaign."""
    lattice = spec.lattice
    unused = dict.fromkeys(("transport_D", "transport_eta"), "needs plasma input")
    if lattice.algorithm != "hmc":
        unused["rejection"] = "sweeps have no accept test"
    if not lattice.flavors:
        unused["cg_estimate"] = "a quenched chain solves nothing"
    domain = None
    known = trained_lattices(sea=lattice.flavors > 0)
    if lattice.algorithm != "hmc":
        domain = "trained on HMC, these chains are heat bath sweeps"
    elif lattice.action != "wilson":
        domain = f"trained on Wilson's action, these chains have {lattice.action}"
    elif lattice.integrator != "leapfrog":
        domain = f"trained on leapfrog trajectories, these are {lattice.integrator}"
    elif not set(lattice.volumes) <= known:
        domain = f"trained on {', '.join(map(lattice_name, sorted(known)))}, these lattices are others"
    measured = default_scores()
    route = _route(spec)
    scores = {s.name: s for s in measured.heads if s.route == route}
    trusted = {name: score.trusted for name, score in scores.items()}
    study = measured.thermalisation_stop
    # A head may have skill and still end warm-ups too early: both must have been measured.
    unbiased = any(rule.rule == "head" and rule.unbiased for rule in study.rules)
    trusted["thermalization"] = trusted.get("thermalization", False) and unbiased
    return Heads(
        weights=default_weights(),
        scores=measured.heads,
        skill={name: score.skill for name, score in scores.items()},
        trusted=trusted,
        stop=EarlyStop(study.sure, study.in_a_row, study.factor),
        unused=unused,
        domain=domain,
        route=route,
    )


def trained_lattices(*, sea: bool) -> set[Dims]:
    """Return the lattices of the corpus, with or without sea quarks."""
    return {grid.dims for grid in CorpusSpec().grids if (grid.flavors > 0) == sea}


def neighbours_of(state: CampaignState, log: ChainLog) -> list[MetaRow]:
    """Return what chains of the same lattice had found when this one was decided: never what came later.

    A chain that is resumed must see what it saw when it began, or its heads would say something else.
    """
    rows = []
    for other in state.chains.values():
        measured = log.beside.get(other.id, 0) - other.warmup
        if other.id == log.id or other.dims != log.dims or other.abandoned or measured < FEWEST:
            continue
        loop = np.hypot(other.column("polyakov_re")[:measured], other.column("polyakov_im")[:measured])
        rows.append(
            MetaRow(
                beta=other.beta,
                plaquette=float(other.column("plaquette")[:measured].mean()),
                susceptibility=float(np.prod(other.dims[:3]) * loop.var()),
            )
        )
    return sorted(rows, key=lambda row: row.beta)


def context_of(spec: CampaignSpec, beta: float, dims: Dims) -> ChainContext:
    """Return what the features see of a chain."""
    return ChainContext(beta=beta, dims=dims, mass=spec.lattice.mass, flavors=spec.lattice.flavors)


def open_device(spec: CampaignSpec) -> EmulatedDevice | None:
    """Return the device that the network runs on; None is software."""
    return EmulatedDevice(profile(PROFILE)) if _route(spec) == ON_NPU else None


def _route(spec: CampaignSpec) -> str:
    return ON_NPU if spec.screening.device == "npu" and screens(spec) else SOFTWARE


def screens(spec: CampaignSpec) -> bool:
    """Return whether a campaign may have a screen: one that tries all orderings has."""
    return spec.ordering == AUTO or arrange(spec.ordering, spec.lattice.volumes, {"": 0}).screens
