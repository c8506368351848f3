"""The rows of a plan in words and figures: why an op is where it is, what that costs, and what the other side would.

`assemble` puts a plan together from its rows: partitions, transfers, totals, and what a reader must know besides.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

from metalforge.core import Cost, Modelled
from metalforge.hybrid.model import ops
from metalforge.hybrid.model.graph import Node, OpGraph, find_regions
from metalforge.reservoir import DENSE_EIGENVALUES, spectral_radius
from metalforge.substrates import NO_POWER, DeviceProfile, HostModel

from .candidates import JobCandidate, Wishes, op_cost
from .encodings import ERROR_MODEL, precision_of
from .jobs import ChainJob, DeviceJob, LinearJob, loading_order
from .plan import InputRange, OpPlan, Partition, Plan, PlanRecord, Transfer, short
from .ranges import ValueRange
from .rules import SeedRow, Substrate, Verdict

PINNED_HOST = "pinned to software"


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
        target = jobs.get(op.of) if isinstance(op, ops.GradientUpdate | ops.MutationUpdate) else None
        alone = op_cost(self.wishes.host, self.node, graph, self.wishes.batch)
        device, host, instead = None, alone, None
        on_chip: dict[str, Any] = {}
        if taken is not None:
            job, part = taken.job, _part(self.node, taken, graph)
            device, host, instead = taken.device * part, taken.host_share * part, alone
            on_chip = {
                "job": job.name,
                "encoding": precision_of(job.encoding),
                "passes": job.passes,
                "chip_bytes": round(part * taken.chip_bytes),
                "predicted_error": job.error,
                "error_bound": self._bound(job),
                "error_model": _error_model(self.node, job),
                "beyond": job.beyond,
            }
        elif self.possible is not None:
            instead = self.possible.whole * _part(self.node, self.possible, graph)
        if target is not None:
            device = target.update
        return OpPlan(
            op=self.node.name,
            kind=op.kind,
            substrate=self._substrate(pushed=target is not None),
            reason=reason,
            fix=fix,
            note=self._note(graph, jobs),
            fallback=self._fallback(),
            device=device,
            host=host,
            instead=instead,
            **on_chip,
        )

    def _substrate(self, *, pushed: bool) -> Substrate:
        if self.taken is not None:
            return "npu+software" if isinstance(self.node.op, ops.RecurrentStep) else "npu"
        if self.pin is None and self.seed is not None and not self._needs_device():
            return self.seed.substrate
        return "software->npu" if pushed and self.seed is None else "software"

    def _needs_device(self) -> bool:
        """Whether the op is nothing but device work, so that a label could not stand without a job."""
        op = self.node.op
        layer = isinstance(op, ops.FullyConnectedOp | ops.RecurrentStep) or (
            isinstance(op, ops.Elementwise) and op.function == "bounded_relu"
        )
        return layer and self.seed is not None and self.seed.substrate != "software"

    def _fallback(self) -> bool:
        work = isinstance(self.node.op, ops.FullyConnectedOp | ops.RecurrentStep | ops.SoftwareOnly)
        if self.taken is not None or self.pin is not None or not work:
            return False
        return self.wishes.policy == "seed" or self.possible is None or _gains(self.possible)

    def _why(self) -> tuple[str, str]:
        """Return the reason and how to make it map."""
        if self.pin is not None:
            taken = self.taken
            return PINNED_HOST if taken is None else f"pinned to the NPU: {_against(taken, self.wishes)}", ""
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
        if isinstance(self.node.op, ops.FullyConnectedOp) and self.seed.substrate == "software":
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
        if isinstance(op, ops.MutationUpdate) and op.of not in jobs:
            extra = "its target is in software, so nothing is pushed"
        elif self.taken is not None and len(self.taken.job.nodes) > 1:
            extra = f"in one program with {', '.join(n for n in self.taken.job.nodes if n != self.node.name)}"
        elif self._substrate(pushed=False) == "npu+software" and self.taken is None:
            before = "nothing" if producer is None or producer.name not in jobs else f"`{producer.name}`"
            extra = f"of what it stands for, {before} runs on the chip here"
        return "; ".join(filter(None, [self.seed.note, extra]))

    def _bound(self, job: DeviceJob) -> float:
        """Return the largest error bound of the op's own outputs."""
        rows = job.spans[self.node.name] if isinstance(job, LinearJob) else slice(None)
        return float(job.error_bound[rows].max())


def _against(candidate: JobCandidate, wishes: Wishes) -> str:
    """Return both sides' figures in words."""
    profile, host = wishes.profile, wishes.host
    whole = candidate.whole
    together = f" for {len(candidate.job.nodes)} ops together" if len(candidate.job.nodes) > 1 else ""
    here, there = candidate.software.latency, whole.latency
    if wishes.objective == "energy":
        here, there = candidate.software.energy, whole.energy
        if here is None or there is None:
            return f"modelled {short(candidate.device.energy)} on {profile.name}{together}; {NO_POWER}"
    return f"modelled {short(here)} on the host ({host.profile}) against {short(there)} with {profile.name}{together}"


def _gains(candidate: JobCandidate) -> bool:
    return candidate.gain > tuple(0.0 for _ in candidate.gain)


def _part(node: Node, candidate: JobCandidate, graph: OpGraph) -> float:
    """Return a node's share of its job: by weights."""
    weights = {name: graph[name].op.parameters for name in candidate.job.nodes}
    total = sum(weights.values())
    return weights[node.name] / total if total else 1 / len(weights)


def _error_model(node: Node, job: DeviceJob) -> str:
    """Return what the predicted error speaks of."""
    if isinstance(job, ChainJob):
        return f"{ERROR_MODEL}; of what the whole chain gives"
    op = node.op
    if not isinstance(op, ops.RecurrentStep) or op.weights.units > DENSE_EIGENVALUES:
        return ERROR_MODEL
    radius = spectral_radius(op.weights.w_res)
    if radius >= 1:
        return f"{ERROR_MODEL}; of one step, and the spectral radius {radius:.2f} does not damp it"
    return f"{ERROR_MODEL}; of one step, up to {1 / sqrt(1 - radius**2):.2g} times as much in a long run"


def assemble(
    graph: OpGraph,
    rows: Sequence[OpRow],
    chosen: Sequence[JobCandidate],
    wishes: Wishes,
    ranges: Mapping[str, ValueRange],
) -> Plan:
    """Return the plan of some rows; `ranges` are those that it was made with."""
    profile = wishes.profile
    jobs = {name: candidate for candidate in chosen for name in candidate.nodes}
    planned = tuple(row.plan(graph, jobs) for row in rows)
    sides: dict[str, Literal["npu", "software"]] = {op.op: "npu" if op.job else "software" for op in planned}
    nothing = Cost(
        latency=Modelled(value=0.0, unit="s", profile=profile.name),
        energy=Modelled(value=0.0, unit="J", profile=profile.name),
    )
    record = PlanRecord(
        graph=graph.name,
        policy=wishes.policy,
        objective=wishes.objective,
        profile=profile.name,
        host_profile=wishes.host.profile,
        tolerance=wishes.tolerance,
        batch=wishes.batch,
        ops=planned,
        partitions=tuple(Partition(side=side, ops=names) for side, names in find_regions(graph.before, sides)),
        transfers=tuple(_transfer(candidate.job, wishes.batch, profile) for candidate in chosen),
        device_total=Cost.total([nothing, *(op.device for op in planned if op.device is not None)]),
        host_total=Cost.total([op.host for op in planned]),
        notes=tuple(_notes(planned, rows, chosen, wishes)),
        precision=wishes.precision,
        ranges=tuple(_input_range(name, ranges.get(name)) for name in graph.inputs),
    )
    return Plan(record=record, graph=graph, jobs=loading_order([c.job for c in chosen]), profile=profile)


def _input_range(name: str, known: ValueRange | None) -> InputRange:
    if known is None:
        return InputRange(name=name, largest=None, source="its range is not known")
    largest, wide = map(float, known.sizes.max(axis=1))
    return InputRange(name=name, largest=largest, source=known.source, wide=wide, beyond=known.beyond[0])


def _transfer(job: DeviceJob, batch: int, profile: DeviceProfile) -> Transfer:
    """Return the bytes of one call: one per input line of every row, four per output."""
    rows = batch * job.positions * job.encoding.rows
    down = rows * sum(program.inputs for program in job.programs)
    width = {"linear": 4, "bounded_relu": 1}
    up = rows * sum(width[p.layers[-1].activation] * p.layers[-1].units for p in job.programs)
    link = profile.call.link_bytes_per_s
    return Transfer(
        job=job.name,
        to_device_bytes=down,
        to_host_bytes=up,
        link=None if link is None else Modelled(value=(down + up) / link.value, unit="s", profile=profile.name),
    )


def _notes(
    planned: Sequence[OpPlan], rows: Sequence[OpRow], chosen: Sequence[JobCandidate], wishes: Wishes
) -> list[str]:
    profile, host = wishes.profile, wishes.host
    notes = [f"every cost is modelled, the device's from {profile.name}, the host's from {host.profile}"]
    left = {id(c): c for row in rows if row.taken is None and (c := row.possible) is not None}
    notes += [f"the host is quicker than the NPU at {text}" for text in _slower(left.values(), host, profile)]
    notes += [f"on the NPU, but the host would be quicker: {text}" for text in _slower(chosen, host, profile)]
    if chosen:
        notes.append(
            f"transfers are part of the round trip that {profile.name} states for a call, and are not added to it"
        )
    programs = sum(len(c.job.programs) for c in chosen)
    if programs > 1:
        notes.append(f"{programs} programs lie side by side; a device that holds one at a time loads them by turns")
    if any(op.host.energy is None for op in planned):
        ranking = (
            "; ops in software rank last, and the host's share is not counted" if wishes.objective == "energy" else ""
        )
        notes.append(f"{NO_POWER}{ranking}")
    return notes


def _slower(candidates: Iterable[JobCandidate], host: HostModel, profile: DeviceProfile) -> list[str]:
    """Return in words which candidates the host does quicker, with both sides' sums; empty where there are none."""
    found = [
        c
        for c in candidates
        if (here := c.software.latency) is not None
        and (there := c.whole.latency) is not None
        and here.value < there.value
    ]
    if not found:
        return []
    names = ", ".join(dict.fromkeys(name for c in found for name in c.job.nodes))
    soft, hard = Cost.total([c.software for c in found]), Cost.total([c.whole for c in found])
    return [
        f"{names}: modelled {short(soft.latency)} on the CPU ({host.profile}) against {short(hard.latency)} with "
        f"{profile.name}"
    ]
