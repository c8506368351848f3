"""The shipped conductor in a campaign: which heads apply to its chains, which of them are trusted, and why not.

Scores say on which chains they were measured (`TestedKind`). On other chains heads are read and recorded, never acted
on: what they say there was not measured on held-out data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from metalforge.campaign.orderings import AUTO, arrange
from metalforge.campaign.spec import CampaignSpec
from metalforge.campaign.theory import Start, System
from metalforge.conductor.features import ChainContext
from metalforge.conductor.reading import NetworkConductor
from metalforge.conductor.scores import AdoptedHead, HeadScore, TestedKind
from metalforge.conductor.shipped import default_scores, default_weights
from metalforge.conductor.trust import EarlyStop
from metalforge.reservoir.weights import EsnWeights

from .watch import ANOMALY

if TYPE_CHECKING:  # heads that are read in software load nothing of a device
    from metalforge.substrates.npu.device import NpuDevice
    from metalforge.substrates.npu.emulator import EmulatedDevice

PROFILE = "akd1000-published"
SOFTWARE, ON_NPU = "f32-software", "npu-w8a8"
"""Where the network can run, as scores call it."""


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
    alarm: float | None = None
    """The probability from which the anomaly head flags a block: on sound chains it is reached once in 10^5 updates.
    None where that was not measured; then it flags nothing."""
    adopted: Mapping[str, AdoptedHead] = field(default_factory=dict)
    """Heads whose readout `conductor adopt` wrote, with the scores of that readout."""
    lost: dict[str, str] = field(default_factory=dict)
    """Heads that lost to their baselines while the campaign ran, and by how much."""

    @property
    def alarm_now(self) -> float | None:
        """`alarm` where the anomaly head's word is taken, else None."""
        return self.alarm if self.acts(ANOMALY) else None

    def acts(self, head: str) -> bool:
        """Return whether a head's word is taken now."""
        applies = self.domain is None and head not in self.unused and head not in self.lost
        return applies and self.trusted.get(head, False)

    def why(self, head: str) -> str:
        """Return why a head that applies is trusted, or why not."""
        if head in self.adopted:
            new = self.adopted[head]
            refused = new.trusted and not self.trusted[head]
            return new.measured + "; the package's readout was not trusted on its test chains" * refused
        if (skill := self.skill.get(head)) is None:
            return "its skill on held-out chains was not measured"
        if self.trusted.get(head, False):
            return f"skill {skill:+.2f} on held-out couplings"
        if skill <= 0:
            return "no skill on held-out couplings"
        found = any(score.trusted for score in self.scores if score.name == head and score.route == self.route)
        lacks = "its early stop was not shown to be unbiased" if found else "with other couplings it might have none"
        return f"skill {skill:+.2f}, but {lacks}"

    def conductor(self, device: "NpuDevice | None" = None) -> NetworkConductor:
        """Return a conductor of its own for one thread."""
        return NetworkConductor(self.weights, device=device)


def load_heads(spec: CampaignSpec) -> Heads:
    """Return the shipped heads as they stand to a campaign."""
    if context_of(spec, spec.theory.low, spec.theory.systems[0]) is None:
        return _not_for_these()
    unused = dict(spec.theory.unused_heads)
    domain, tested = _tested(spec, default_scores().tested_on)
    if tested is not None:
        untested = set(default_weights().heads.names) - tested  # type: ignore[union-attr]
        unused = dict.fromkeys(sorted(untested), "not tested on chains of this kind") | unused
    return replace(scored_heads(_route(spec)), unused=unused, domain=domain)


def scored_heads(route: str) -> Heads:
    """Return the shipped heads with their scores where the network runs on this route, whatever the chains are."""
    measured = default_scores()
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
        unused={},
        domain=None,
        route=route,
        alarm=None if measured.gate is None else measured.gate.threshold,
    )


def _not_for_these() -> Heads:
    """Return the shipped heads where rows are of a physics that none of them was trained on."""
    heads, domain = scored_heads(SOFTWARE), "not trained on chains of this physics"
    unused = dict.fromkeys(heads.weights.heads.names, domain)  # type: ignore[union-attr]
    return replace(heads, skill={}, trusted={}, unused=unused, domain=domain, alarm=None)


def _tested(spec: CampaignSpec, kinds: Sequence[TestedKind]) -> tuple[str | None, set[str] | None]:
    """Return why no head is acted on, if so, and the heads that were tested on chains of this kind; None is all."""
    if not kinds:
        return "what they were tested on is not known", None
    heads: set[str] | None = None
    for system in spec.theory.systems:
        context, integrator = context_of(spec, spec.theory.low, system), spec.theory.integrated_by
        if context is None:
            return "not trained on chains of this physics", None
        alike = [kind for kind in kinds if kind.lacks(context, integrator) is None]
        if not alike:
            same = [k for k in kinds if (k.algorithm, k.flavors) == (context.algorithm, context.flavors)]
            return f"tested on {(same or kinds)[0].lacks(context, integrator)}", None
        if all(kind.heads for kind in alike):
            here = {name for kind in alike for name in kind.heads}
            heads = here if heads is None else heads & here
    return None, heads


def context_of(spec: CampaignSpec, coordinate: float, system: System, start: Start = "") -> ChainContext | None:
    """Return what the features see of a chain; None where no head was trained on any like it."""
    return spec.theory.head_context(coordinate, system, start or spec.theory.start_of(0))


def open_device(spec: CampaignSpec) -> "EmulatedDevice | None":
    """Return the device that the network runs on; None is software."""
    if not on_device(spec):
        return None
    from metalforge.substrates.npu.emulator import EmulatedDevice
    from metalforge.substrates.profiles import profile

    return EmulatedDevice(profile(PROFILE))


def on_device(spec: CampaignSpec) -> bool:
    """Return whether the network of a campaign runs on the device, and not in software."""
    return spec.screening.device == "npu" and screens(spec)


def _route(spec: CampaignSpec) -> str:
    return ON_NPU if on_device(spec) else SOFTWARE


def screens(spec: CampaignSpec) -> bool:
    """Return whether a campaign may have a screen: one that tries all orderings has."""
    if not spec.theory.screened:
        return False
    return spec.ordering == AUTO or arrange(spec.ordering, spec.theory.systems, {"": 0}).screens
