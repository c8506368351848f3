"""A plan for people: a table, a paragraph about one op, and a drawing for Graphviz."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metalforge.core.quantities import Quantity
from metalforge.core.substrate import Cost
from metalforge.hybrid.model.graph import OpGraph

if TYPE_CHECKING:
    from .plan import OpPlan, PlanRecord

__all__ = ["HEADER", "cells", "dot", "paragraph", "short", "table"]

HEADER = ("op", "kind", "substrate", "encoding", "passes", "chip bytes", "error", "device", "host", "reason")
COLOURS = {"npu": "#cfe8cf", "npu+software": "#e4efc4", "software->npu": "#f3e8c0", "software": "#e6e6e6"}


def cells(row: "OpPlan") -> tuple[str, ...]:
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


def table(record: "PlanRecord") -> str:
    """Return the whole plan: a line an op, how to make the others map, totals, notes."""
    head = f"{record.graph}: policy {record.policy}, objective {record.objective}, device {record.profile}"
    lines = [f"{head}, host {record.host_profile}, tolerance {record.tolerance:g}, batch {record.batch}"]
    lines += _aligned([HEADER, *map(cells, record.ops)])
    fixes = [f"  {row.op}: {row.fix}" for row in record.ops if row.fix]
    if fixes:
        lines += ["how to make it map:", *fixes]
    notes = [f"  {row.op}: {row.note}" for row in record.ops if row.note]
    if notes:
        lines += ["what the chip really does:", *notes]
    lines.append(f"device: {_cost(record.device_total)}")
    lines.append(f"host: {_cost(record.host_total)}")
    return "\n".join([*lines, *(f"note: {note}" for note in record.notes)])


def paragraph(row: "OpPlan") -> str:
    """Return everything about one op, a fact a line."""
    facts = [f"{row.op} ({row.kind}): {row.substrate}", f"why: {row.reason}"]
    if row.fix:
        facts.append(f"to make it map: {row.fix}")
    if row.note:
        facts.append(f"on the chip: {row.note}")
    if row.job:
        facts.append(
            f"job `{row.job}`: {row.encoding}, chip rows per sample: {row.passes}, bytes on chip: {row.chip_bytes}"
        )
    if row.predicted_error is not None:
        facts.append(f"predicted error: {row.predicted_error:.2e} ({row.error_model})")
    if row.error_bound is not None:
        facts.append(f"at worst: {row.error_bound:.3g}, for inputs within their ranges")
    if row.device is not None:
        facts.append(f"device: {_cost(row.device)}")
    facts.append(f"host: {_cost(row.host)}")
    if row.instead is not None:
        facts.append(f"instead, on the other side: {_cost(row.instead)}")
    return "\n".join(facts)


def dot(graph: OpGraph, record: "PlanRecord") -> str:
    """Return a drawing: a cluster a partition, an edge a value."""
    lines = ["digraph plan {", "  rankdir=LR;", '  node [shape=box, style=filled, fontname="sans-serif"];']
    lines += [f'  {_quoted("input " + name)} [shape=ellipse, fillcolor="white"];' for name in graph.inputs]
    rows = {row.op: row for row in record.ops}
    for i, part in enumerate(record.partitions):
        lines += [f"  subgraph cluster_{i} {{", f"    label={_quoted(part.side)};"]
        for name in part.ops:
            row = rows[name]
            label = "\n".join(filter(None, [name, row.kind, f"{row.substrate} {row.encoding}".strip()]))
            colour = COLOURS[row.substrate]
            lines.append(
                f'    {_quoted("op " + name)} [label={_quoted(label)}, fillcolor="{colour}", '
                f"tooltip={_quoted(row.reason)}];"
            )
        lines.append("  }")
    for node in graph.nodes:
        for value in node.inputs:
            producer = graph.producer(value)
            source = f"input {value}" if producer is None else f"op {producer.name}"
            lines.append(f"  {_quoted(source)} -> {_quoted('op ' + node.name)} [label={_quoted(value)}];")
    for value in graph.outputs:
        producer = graph.producer(value)
        source = f"input {value}" if producer is None else f"op {producer.name}"
        lines.append(f'  {_quoted("output " + value)} [shape=ellipse, fillcolor="white"];')
        lines.append(f"  {_quoted(source)} -> {_quoted('output ' + value)};")
    return "\n".join([*lines, "}"])


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]) for row in rows]


def short(quantity: Quantity | None) -> str:
    """Return a figure without its source, which the table's head names."""
    return "-" if quantity is None else str(quantity).split(" (")[0]


def _cost(cost: Cost) -> str:
    energy = cost.unknown or "no figure" if cost.energy is None else str(cost.energy)
    return f"{cost.latency or cost.unknown or 'no figure'}, energy {energy}"


def _quoted(text: str) -> str:
    """Return a Graphviz string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
