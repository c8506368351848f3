"""The rows of a plan in words and figures: why an op is where it is, what that costs, and what the other side would."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from metalforge.core.substrate import Cost
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.ops import (
    Elementwise,
    FullyConnectedOp,
    GradientUpdate,
    MutationUpdate,
    RecurrentStep,
    SoftwareOnly,
)
from metalforge.reservoir.weights import DENSE_EIGENVALUES, spectral_radius
from metalforge.substrates.prices import NO_POWER

from .candidates import JobCandidate, chip_bytes
from .encodings import ERROR_MODEL
from .jobs import ChainJob, LinearJob
from .plan import OpPlan
from .plan_text import short
from .precision import precision_of
from .pricing import op_cost, push_cost
from .seed_policy import SeedRow, Substrate
from .verdict import Verdict
from .wishes import Wishes

__all__ = ["OpRow", "whole_cost"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpRow:
    """What was decided for one op, and what there was to choose from."""

    node: Node
    taken: JobCandidate | None
    possible: JobCandidate | None
    """The best candidate that covers it, taken or not."""
    verdict: Verdict
    pin: str | None
    seed: SeedRow | None
    wishes: Wishes

    def plan(self, graph: OpGraph, jobs: Mapping[str, JobCandidate]) -> OpPlan:
        """Return the row as a record; `jobs` are the candidates on the device by the nodes they cover."""
        reason, fix = self._why()
        op, taken = self.node.op, self.taken
        target = jobs.get(op.of) if isinstance(op, GradientUpdate | MutationUpdate) else None
        alone = op_cost(self.wishes.host, self.node, graph, self.wishes.batch)
        device = instead = None
        if taken is not None:
            part = _part(self.node, taken, graph)
            device, instead = taken.device * part, alone
        elif self.possible is not None:
            instead = whole_cost(self.possible) * _part(self.node, self.possible, graph)
        if target is not None and isinstance(target.job, LinearJob):
            device = push_cost(target.job, self.wishes.profile)
        substrate = self._substrate(pushed=target is not None)
        return OpPlan(
            op=self.node.name,
            kind=op.kind,
            substrate=substrate,
            reason=reason,
            fix=fix,
            note=self._note(graph, jobs),
            fallback=self._fallback(),
            job="" if taken is None else taken.job.name,
            encoding="" if taken is None else precision_of(taken.job.encoding),
            passes=0 if taken is None else taken.job.passes,
            chip_bytes=0 if taken is None else round(part * chip_bytes(taken.job, self.wishes.profile)),
            predicted_error=None if taken is None else taken.job.error,
            error_bound=None if taken is None else self._bound(taken),
            error_model="" if taken is None else _error_model(self.node, taken),
            device=device,
            host=alone if taken is None else taken.host_share * part,
            instead=instead,
        )

    def _substrate(self, *, pushed: bool) -> Substrate:
        if self.taken is not None:
            return "npu+software" if isinstance(self.node.op, RecurrentStep) else "npu"
        if self.pin is None and self.seed is not None and not self._needs_device():
            return self.seed.substrate
        return "software->npu" if pushed and self.seed is None else "software"

    def _needs_device(self) -> bool:
        """Whether the op is nothing but device work, so that a label could not stand without a job."""
        op = self.node.op
        layer = isinstance(op, FullyConnectedOp | RecurrentStep) or (
            isinstance(op, Elementwise) and op.function == "bounded_relu"
        )
        return layer and self.seed is not None and self.seed.substrate != "software"

    def _fallback(self) -> bool:
        work = isinstance(self.node.op, FullyConnectedOp | RecurrentStep | SoftwareOnly)
        if self.taken is not None or self.pin is not None or not work:
            return False
        return self.wishes.policy == "seed" or self.possible is None or _gains(self.possible)

    def _why(self) -> tuple[str, str]:
        """Return the reason and how to make it map."""
        if self.pin is not None and self.taken is None:
            return "pinned to software", ""
        if self.pin is not None and self.taken is not None:
            return f"pinned to the NPU: {_against(self.taken, self.wishes)}", ""
        if self.wishes.policy == "seed":
            return self._by_table()
        if self.taken is not None:
            lead = (
                self._winner("npu")
                if self.taken.software.energy or self.wishes.objective != "energy"
                else "the one figure"
            )
            return f"{lead}: {_against(self.taken, self.wishes)}", ""
        if self.possible is None:
            return self.verdict.reason, self.verdict.fix
        there = f'objective="hw_only" or pin={{"{self.node.name}": "npu"}} puts it there'
        if self.wishes.objective == "accuracy":
            error = self.possible.job.error
            return f"software does not round; the NPU's best encoding is predicted to err by {error:.1e}", there
        if _gains(self.possible):
            return (
                "no room on the chip beside the rest of the plan",
                "pin other ops to software, or use a second device",
            )
        return f"{self._winner('software')}: {_against(self.possible, self.wishes)}", there

    def _by_table(self) -> tuple[str, str]:
        if self.seed is None:
            return "no row of the published table speaks of it", ""
        if self.taken is None and self._needs_device():
            why = self.verdict.reason if self.possible is None else "there is no room on the chip beside the others"
            return f"the published table says {self.seed.substrate} ({self.seed.reason}), but {why}", self.verdict.fix
        fix = ""
        if isinstance(self.node.op, FullyConnectedOp) and self.seed.substrate == "software":
            fix = 'policy="default" slices its weights into digits, and its rows over processors'
        return self.seed.reason, fix

    def _winner(self, side: str) -> str:
        if self.wishes.objective == "hw_only":
            return "objective hw_only"
        better = "cheaper in energy" if self.wishes.objective == "energy" else "quicker"
        return f"{better} on the NPU" if side == "npu" else f"{better} in software"

    def _note(self, graph: OpGraph, jobs: Mapping[str, JobCandidate]) -> str:
        """Return what the chip does instead of what the table says."""
        if self.seed is None:
            return ""
        op, extra = self.node.op, ""
        producer = graph.producer(self.node.inputs[0]) if self.node.inputs else None
        if isinstance(op, MutationUpdate) and op.of not in jobs:
            extra = "its target is in software, so nothing is pushed"
        elif self.taken is not None and len(self.taken.job.nodes) > 1:
            extra = f"in one program with {', '.join(n for n in self.taken.job.nodes if n != self.node.name)}"
        elif self._substrate(pushed=False) == "npu+software" and self.taken is None:
            before = "nothing" if producer is None or producer.name not in jobs else f"`{producer.name}`"
            extra = f"of what it stands for, {before} runs on the chip here"
        return "; ".join(filter(None, [self.seed.note, extra]))

    def _bound(self, taken: JobCandidate) -> float:
        """Return the largest error bound of the op's own outputs."""
        bound = taken.job.error_bound
        if isinstance(taken.job, LinearJob):
            bound = bound[taken.job.spans[self.node.name]]
        return float(bound.max())


def whole_cost(candidate: JobCandidate) -> Cost:
    """Return what a candidate costs with the host's share of it and the updates of its weights."""
    parts = [candidate.device, candidate.host_share]
    return Cost.total(parts if candidate.pushes is None else [*parts, candidate.pushes])


def _against(candidate: JobCandidate, wishes: Wishes) -> str:
    """Return both sides' figures in words."""
    profile, host = wishes.profile, wishes.host
    whole = whole_cost(candidate)
    together = f" for {len(candidate.job.nodes)} ops together" if len(candidate.job.nodes) > 1 else ""
    if wishes.objective == "energy":
        if candidate.software.energy is None or whole.energy is None:
            here = candidate.device.energy
            return f"modelled {short(here)} on {profile.name}{together}; {NO_POWER}"
        return (
            f"modelled {short(whole.energy)} with {profile.name} against {short(candidate.software.energy)} "
            f"on the host ({host.profile}){together}"
        )
    return (
        f"modelled {short(candidate.software.latency)} on the host ({host.profile}) against {short(whole.latency)} "
        f"with {profile.name}{together}"
    )


def _gains(candidate: JobCandidate) -> bool:
    return candidate.gain > tuple(0.0 for _ in candidate.gain)


def _part(node: Node, candidate: JobCandidate, graph: OpGraph) -> float:
    """Return a node's share of its job: by weights."""
    weights = {name: graph[name].op.parameters for name in candidate.job.nodes}
    total = sum(weights.values())
    return weights[node.name] / total if total else 1 / len(weights)


def _error_model(node: Node, candidate: JobCandidate) -> str:
    """Return what the predicted error speaks of."""
    if isinstance(candidate.job, ChainJob):
        return f"{ERROR_MODEL}; of what the whole chain gives"
    op = node.op
    if not isinstance(op, RecurrentStep) or op.weights.units > DENSE_EIGENVALUES:
        return ERROR_MODEL
    radius = spectral_radius(op.weights.w_res)
    if radius >= 1:
        return f"{ERROR_MODEL}; of one step, and the spectral radius {radius:.2f} does not damp it"
    return f"{ERROR_MODEL}; of one step, up to {1 / sqrt(1 - radius**2):.2g} times as much in a long run"
