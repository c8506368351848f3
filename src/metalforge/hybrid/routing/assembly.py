"""A plan put together from its rows: partitions, transfers, totals, and what a reader must know besides."""

from collections.abc import Iterable, Sequence
from typing import Literal

from metalforge.core.quantities import Modelled
from metalforge.core.substrate import Cost
from metalforge.hybrid.model.graph import OpGraph
from metalforge.hybrid.model.regions import find_regions
from metalforge.substrates.prices import NO_POWER, HostModel
from metalforge.substrates.profiles import DeviceProfile

from .candidates import JobCandidate
from .jobs import Job, loading_order
from .plan import OpPlan, Partition, Plan, PlanRecord, Transfer
from .plan_text import short
from .rows import OpRow, whole_cost
from .wishes import Wishes

__all__ = ["assemble"]


def assemble(graph: OpGraph, rows: Sequence[OpRow], chosen: Sequence[JobCandidate], wishes: Wishes) -> Plan:
    """Return the plan of some rows."""
    profile = wishes.profile
    jobs = {name: candidate for candidate in chosen for name in candidate.nodes}
    ops = tuple(row.plan(graph, jobs) for row in rows)
    sides: dict[str, Literal["npu", "software"]] = {op.op: "npu" if op.job else "software" for op in ops}
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
        ops=ops,
        partitions=tuple(Partition(side=side, ops=names) for side, names in find_regions(graph.before, sides)),
        transfers=tuple(_transfer(candidate.job, wishes.batch, profile) for candidate in chosen),
        device_total=Cost.total([nothing, *(op.device for op in ops if op.device is not None)]),
        host_total=Cost.total([op.host for op in ops]),
        notes=tuple(_notes(ops, rows, chosen, wishes)),
    )
    return Plan(record=record, graph=graph, jobs=loading_order([c.job for c in chosen]), profile=profile)


def _transfer(job: Job, batch: int, profile: DeviceProfile) -> Transfer:
    """Return the bytes of one call: a byte an input line of every row, four an output."""
    rows = batch * job.positions * (job.encoding.activation_bits // 4)
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


def _notes(ops: Sequence[OpPlan], rows: Sequence[OpRow], chosen: Sequence[JobCandidate], wishes: Wishes) -> list[str]:
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
    if any(op.host.energy is None for op in ops):
        ranking = (
            "; ops in software rank last, and the host's share is not counted" if wishes.objective == "energy" else ""
        )
        notes.append(f"{NO_POWER}{ranking}")
    return notes


def _slower(candidates: Iterable[JobCandidate], host: HostModel, profile: DeviceProfile) -> list[str]:
    """Return in words which candidates the host does quicker, with both sides' sums; empty where there are none."""
    found = [c for c in candidates if _host_is_quicker(c)]
    if not found:
        return []
    names = ", ".join(dict.fromkeys(name for c in found for name in c.job.nodes))
    soft, hard = Cost.total([c.software for c in found]), Cost.total([whole_cost(c) for c in found])
    return [
        f"{names}: modelled {short(soft.latency)} on the CPU ({host.profile}) against {short(hard.latency)} with "
        f"{profile.name}"
    ]


def _host_is_quicker(candidate: JobCandidate) -> bool:
    soft, hard = candidate.software.latency, whole_cost(candidate).latency
    return soft is not None and hard is not None and soft.value < hard.value
