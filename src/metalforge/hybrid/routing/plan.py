"""A plan: for every op where it runs, why, what would change that, and what it costs; printable, comparable, storable.

The records are what travels (JSON, tables); `Plan` adds the graph and the compiled jobs that an executor needs. Costs
of the device and of the host are kept apart, each modelled from a profile that it names: nothing here was measured.
"""

from dataclasses import dataclass
from typing import Literal

import msgspec

from metalforge.core.errors import UnknownNameError
from metalforge.core.quantities import Modelled, Quantity
from metalforge.core.substrate import Cost
from metalforge.hybrid.model.graph import OpGraph
from metalforge.substrates.prices import Objective
from metalforge.substrates.profiles import DeviceProfile

from . import plan_text
from .jobs import Job
from .seed_policy import Substrate

__all__ = ["Change", "OpPlan", "Partition", "Plan", "PlanRecord", "Transfer"]


class OpPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One op: its place and the case for it. Costs are of one call of the plan's batch."""

    op: str
    kind: str
    substrate: Substrate
    reason: str
    fix: str = ""
    """How to make it map, where it does not."""
    note: str = ""
    """Where the published table and the chip disagree."""
    fallback: bool = False
    """In software because the NPU cannot, though it is work for one; what `strict` refuses."""
    job: str = ""
    """The device job it is part of; empty where the host does it all."""
    encoding: str = ""
    """Such as W8A8: weights of two digits, activations of two nibble rows."""
    passes: int = 0
    """Chip rows that one sample takes in its job."""
    chip_bytes: int = 0
    """Its share of what the job takes on the chip."""
    predicted_error: float | None = None
    """Relative, in the mean square; `error_model` says of what."""
    error_bound: float | None = None
    """The largest absolute error of any output, for inputs within their ranges."""
    error_model: str = ""
    device: Cost | None = None
    host: Cost
    instead: Cost | None = None
    """What the other side would have cost, where there was a choice."""

    @property
    def latency(self) -> Quantity | None:
        """Device and host together, both modelled."""
        return Cost.total([self.host] if self.device is None else [self.device, self.host]).latency

    @property
    def energy(self) -> Quantity | None:
        """Device and host together; None where one has no figure."""
        return Cost.total([self.host] if self.device is None else [self.device, self.host]).energy


class Partition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ops that run on one side without a break, in an order in which partitions can run."""

    side: Literal["npu", "software"]
    ops: tuple[str, ...]


class Transfer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes between host and device in one call of a job. Their time is part of the call and is not added again."""

    job: str
    to_device_bytes: int
    to_host_bytes: int
    link: Modelled | None = None
    """What the bytes would take over the profile's link by themselves; None where it has no figure."""


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A difference between two plans: an op, what of it, before and after."""

    op: str
    what: str
    before: str
    after: str

    def __str__(self) -> str:
        """Return it in a line."""
        return f"{self.op}: {self.what} {self.before} -> {self.after}"


class PlanRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan as data."""

    graph: str
    policy: str
    objective: Objective
    profile: str
    host_profile: str
    tolerance: float
    batch: int
    ops: tuple[OpPlan, ...]
    partitions: tuple[Partition, ...]
    transfers: tuple[Transfer, ...]
    device_total: Cost
    host_total: Cost
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Where every op of a graph runs, with the jobs that the device is given."""

    record: PlanRecord
    graph: OpGraph
    jobs: tuple[Job, ...]
    profile: DeviceProfile

    def __getitem__(self, op: str) -> OpPlan:
        """Return the row of an op."""
        for row in self.record.ops:
            if row.op == op:
                return row
        raise UnknownNameError(f"op of graph {self.record.graph}", op, [row.op for row in self.record.ops])

    @property
    def ops(self) -> tuple[OpPlan, ...]:
        """A row an op, in an order in which they can run."""
        return self.record.ops

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """Maximal convex regions of one side."""
        return self.record.partitions

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """Bytes over the link, a row a job."""
        return self.record.transfers

    @property
    def device_total(self) -> Cost:
        """What one call takes on the device, modelled from the device profile."""
        return self.record.device_total

    @property
    def host_total(self) -> Cost:
        """What one call takes on the host, modelled from the host profile."""
        return self.record.host_total

    def explain(self, op: str | None = None) -> str:
        """Return the plan as a table, or all that is known of one op."""
        return plan_text.table(self.record) if op is None else plan_text.paragraph(self[op])

    def to_json(self) -> str:
        """Return the record as JSON; `msgspec.json.decode(text, type=PlanRecord)` reads it back."""
        return msgspec.json.format(msgspec.json.encode(self.record), indent=2).decode()

    def to_dot(self) -> str:
        """Return the graph in Graphviz's language, a cluster a partition."""
        return plan_text.dot(self.graph, self.record)

    def diff(self, other: "Plan") -> tuple[Change, ...]:
        """Return what changed from this plan to another: placement, encoding, cost; ops that only one of them has."""
        mine, theirs = ({row.op: row for row in plan.ops} for plan in (self, other))
        found = []
        for name in dict.fromkeys([*mine, *theirs]):
            if name not in mine or name not in theirs:
                there = ("absent", "present") if name not in mine else ("present", "absent")
                found.append(Change(op=name, what="op", before=there[0], after=there[1]))
                continue
            before, after = _compared(mine[name]), _compared(theirs[name])
            found += [
                Change(op=name, what=what, before=before[what], after=after[what])
                for what in before
                if before[what] != after[what]
            ]
        return tuple(found)


def _compared(row: OpPlan) -> dict[str, str]:
    """Return what `diff` looks at, as text."""
    return {
        "substrate": row.substrate,
        "encoding": row.encoding or "none",
        "passes": str(row.passes),
        "latency": str(row.latency or "unknown"),
        "energy": str(row.energy or "unknown"),
    }
