"""A plan: for every op where it runs, why, what would change that, and what it costs; printable, comparable, storable.

The records are what travels (JSON, tables); `Plan` adds the graph and the compiled jobs that an executor needs. Costs
of the device and of the host are kept apart, each modelled from a profile that it names: nothing here was measured.
"""

from dataclasses import dataclass
from html import escape
from typing import Literal

import msgspec

from metalforge.core import Cost, Modelled, Quantity, TextTable, aligned, escaped, find
from metalforge.hybrid.model.graph import OpGraph
from metalforge.substrates import DeviceProfile, Objective

from .jobs import DeviceJob
from .ranges import ValueRange
from .rules import Substrate


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
    beyond: int = 0
    """Numbers of the calibration data beyond the ranges of its job, which clamps them."""
    device: Cost | None = None
    host: Cost = Cost()
    instead: Cost | None = None
    """What the other side would have cost, where there was a choice."""

    @property
    def compared(self) -> dict[str, str]:
        """What `Plan.diff` compares, as text."""
        cost = self.together
        latency, energy = str(cost.latency or "unknown"), str(cost.energy or "unknown")
        found = {"op": "present", "substrate": self.substrate, "encoding": self.encoding or "none"}
        return found | {"passes": str(self.passes), "latency": latency, "energy": energy}

    def __str__(self) -> str:
        """Return its place in a line."""
        facts = [f"{self.substrate} {self.encoding}".strip(), "" if self.encoding else self.reason]
        if self.beyond:
            facts.append(f"{self.beyond} numbers of the calibration data beyond its ranges")
        return f"{self.op} ({self.kind}): {', '.join(filter(None, facts))}"

    @property
    def together(self) -> Cost:
        """Device and host, both modelled; a figure is None where one of them has none."""
        return Cost.total([self.host] if self.device is None else [self.device, self.host])


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


class InputRange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How large a graph's input is taken to be, and how that is known; None where nobody said."""

    name: str
    largest: float | None
    """At 4 bits."""
    source: str
    wide: float | None = None
    """At 8 bits and more."""
    beyond: int = 0
    """Numbers of the calibration data beyond `largest`."""

    @classmethod
    def of(cls, name: str, known: ValueRange | None) -> "InputRange":
        """Return the largest range of any line."""
        if known is None:
            return cls(name=name, largest=None, source="its range is not known")
        largest, wide = map(float, known.sizes.max(axis=1))
        return cls(name=name, largest=largest, source=known.source, wide=wide, beyond=known.beyond[0])

    def __str__(self) -> str:
        """Return it in a line."""
        if self.largest is None:
            return f"`{self.name}`: {self.source}, so that no op that reads it can be rounded"
        wide = "" if self.wide in (None, self.largest) else f" ({self.wide:.4g} at 8 bits and more)"
        beyond = f", with {self.beyond} numbers beyond" if self.beyond else ""
        return f"|{self.name}| <= {self.largest:.4g}{wide}, {self.source}{beyond}; larger values are clamped"


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
    precision: str | None = None
    """What all encodings were asked to be; None where the tolerance chose them."""
    ranges: tuple[InputRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Plan:
    """Where every op of a graph runs, with the jobs that the device is given."""

    record: PlanRecord
    graph: OpGraph
    jobs: tuple[DeviceJob, ...]
    profile: DeviceProfile

    def __repr__(self) -> str:
        """Return what it is for, in a line."""
        return f"<Plan {_head(self.record)}>"

    def __str__(self) -> str:
        """Return what fits a screen: where the first ops run and what all of it costs; `explain` says why."""
        return summary(self.record)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the same as `str`, in columns."""
        return f"<pre>{escape(str(self))}</pre>"

    def __getitem__(self, op: str) -> OpPlan:
        """Return the row of an op."""
        return find(f"op of graph {self.record.graph}", op, {row.op: row for row in self.record.ops})

    def explain(self, op: str | None = None) -> str:
        """Return the plan as a table, or all that is known of one op."""
        if op is not None:
            return paragraph(self[op])
        found = table(self.record)
        return "\n".join([found.title, *aligned([found.columns, *found.rows]), *remarks(self.record)])

    def to_dot(self) -> str:
        """Return the graph in Graphviz's language: a cluster a partition, an edge a value."""
        graph, rows = self.graph, {row.op: row for row in self.record.ops}
        lines = ["digraph plan {", "  rankdir=LR;", '  node [shape=box, style=filled, fontname="sans-serif"];']
        for kind, values in (("input", graph.inputs), ("output", graph.outputs)):
            lines += [f'  {_quoted(f"{kind} {value}")} [shape=ellipse, fillcolor="white"];' for value in values]
        for i, part in enumerate(self.record.partitions):
            lines += [f"  subgraph cluster_{i} {{", f"    label={_quoted(part.side)};"]
            for row in map(rows.__getitem__, part.ops):
                label = "\n".join(filter(None, [row.op, row.kind, f"{row.substrate} {row.encoding}".strip()]))
                look = f'label={_quoted(label)}, fillcolor="{COLOURS[row.substrate]}", tooltip={_quoted(row.reason)}'
                lines.append(f"    {_quoted('op ' + row.op)} [{look}];")
            lines.append("  }")
        makers = {value: f"op {node.name}" for node in graph.nodes for value in node.outputs}
        makers |= {value: f"input {value}" for value in graph.inputs}
        reads = [
            (value, f"op {node.name}", f" [label={_quoted(value)}]") for node in graph.nodes for value in node.inputs
        ]
        reads += [(value, f"output {value}", "") for value in graph.outputs]
        lines += [f"  {_quoted(makers[value])} -> {_quoted(reader)}{label};" for value, reader, label in reads]
        return "\n".join([*lines, "}"])

    def diff(self, other: "Plan") -> tuple[str, ...]:
        """Return a line for each change of placement, encoding or cost, and for each op that only one plan has."""
        mine, theirs = ({row.op: row.compared for row in plan.record.ops} for plan in (self, other))
        absent = {"op": "absent"}
        return tuple(
            f"{op}: {what} {before} -> {after}"
            for op in mine | theirs
            for what, before in mine.get(op, absent).items()
            if before != (after := theirs.get(op, absent).get(what, before))
        )


HEADER = ("op", "kind", "substrate", "encoding", "passes", "chip bytes", "error", "device", "host", "reason")
SCREEN, NAME_WIDTH = 16, 32
"""Ops, and characters of a name, that `print(plan)` shows."""
COLOURS = {"npu": "#cfe8cf", "npu+software": "#e4efc4", "software->npu": "#f3e8c0", "software": "#e6e6e6"}


def cells(row: OpPlan) -> tuple[str, ...]:
    """Return a row of the table, as `HEADER` names it."""
    return (
        row.op,
        row.kind,
        row.substrate,
        row.encoding or "-",
        str(row.passes or "-"),
        str(row.chip_bytes or "-"),
        "-" if row.predicted_error is None else f"{row.predicted_error:.1e}",
        short(None if row.device is None else row.device.latency),
        short(row.host.latency),
        row.reason,
    )


def table(record: PlanRecord) -> TextTable:
    """Return a line per op."""
    head = f"{record.graph}: policy {record.policy}, objective {record.objective}, device {record.profile}"
    title = f"{head}, host {record.host_profile}, tolerance {record.tolerance:g}, batch {record.batch}"
    return TextTable(title, HEADER, [cells(row) for row in record.ops])


def remarks(record: PlanRecord) -> list[str]:
    """Return what the table does not say: ranges, how to make the others map, totals, notes."""
    lines = [f"range: {known}" for known in record.ranges]
    lines += [f"{row.op}: to make it map: {row.fix}" for row in record.ops if row.fix]
    lines += [f"{row.op}: on the chip: {row.note}" for row in record.ops if row.note]
    return [*lines, *_totals(record), *(f"note: {note}" for note in record.notes)]


def _totals(record: PlanRecord) -> list[str]:
    return [f"device: {_cost(record.device_total)}", f"host: {_cost(record.host_total)}"]


def summary(record: PlanRecord) -> str:
    """Return the plan on one screen: the first ops without their reasons, and totals."""
    shown = [[_cut(c) for c in line[:4] + line[6:9]] for line in (HEADER, *map(cells, record.ops[:SCREEN]))]
    lines = [_head(record), *aligned(shown)]
    if len(record.ops) > SCREEN:
        lines.append(f"... and {len(record.ops) - SCREEN} more")
    return "\n".join([*lines, *_totals(record), "plan.explain() says why, and what would make the others map"])


def _head(record: PlanRecord) -> str:
    on_chip = sum(bool(row.job) for row in record.ops)
    return (
        f"of `{_cut(record.graph)}` for {record.profile}, objective {record.objective}: "
        f"{on_chip} of {len(record.ops)} ops on the NPU"
    )


def _cut(text: str) -> str:
    shown = escaped(text)  # a file's words may hold what a terminal obeys
    return shown if len(shown) <= NAME_WIDTH else f"{shown[: NAME_WIDTH - 3]}..."


def paragraph(row: OpPlan) -> str:
    """Return everything about one op, a fact a line."""
    on_chip = f"{row.encoding}, chip rows per sample: {row.passes}, bytes on chip: {row.chip_bytes}"
    error, bound, alone = row.predicted_error, row.error_bound, row.instead
    facts = {
        "why": row.reason,
        "to make it map": row.fix,
        "on the chip": row.note,
        f"job `{row.job}`": row.job and on_chip,
        "predicted error": error is not None and f"{error:.2e} ({row.error_model})",
        "calibration data": row.beyond and f"{row.beyond} numbers lie beyond the ranges and would be clamped",
        "at worst": bound is not None and f"{bound:.3g}, for inputs within their ranges",
        "device": row.device is not None and _cost(row.device),
        "host": _cost(row.host),
        "instead, on the other side": alone is not None and _cost(alone),
    }
    known = [f"{name}: {fact}" for name, fact in facts.items() if fact]
    return "\n".join([f"{row.op} ({row.kind}): {row.substrate}", *known])


def short(quantity: Quantity | None) -> str:
    """Return a figure without its source, which the table's head names."""
    return "-" if quantity is None else str(quantity).split(" (")[0]


def _cost(cost: Cost) -> str:
    energy = cost.unknown or "no figure" if cost.energy is None else str(cost.energy)
    return f"{cost.latency or cost.unknown or 'no figure'}, energy {energy}"


def _quoted(text: str) -> str:
    """Return a Graphviz string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
