"""A plan of chunks for people: a line a chunk, then what a step takes."""

from typing import TYPE_CHECKING

from metalforge.core.substrate import Cost

if TYPE_CHECKING:
    from .plan import Chunk, ChunkPlan

__all__ = ["HEADER", "cells", "table"]

HEADER = ("chunk", "place", "programs", "processors", "bytes", "a step", "why")


def cells(chunk: "Chunk") -> tuple[str, ...]:
    """Return a row of the table, as `HEADER` names it."""
    return (
        chunk.name,
        chunk.place,
        "-" if chunk.compiled is None else str(len(chunk.compiled.programs)),
        ", ".join(chunk.processors) or "-",
        str(chunk.bytes),
        _short(chunk.cost),
        chunk.why,
    )


def table(plan: "ChunkPlan") -> str:
    """Return the whole plan."""
    rows = [HEADER, *map(cells, plan.chunks)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    count, left = len(plan.chunks), plan.units - plan.device_units
    head = (
        f"{plan.units} units in {count} chunk{'s' * (count > 1)}: {plan.device_units} on {plan.profile.name} at "
        f"{plan.precision}, W_in on the {plan.inputs}, {left} in software"
    )
    lines = [head]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if plan.device is not None:
        lines.append(f"device, per step: {_whole(plan.device)}")
    lines.append(f"host, per step: {_whole(plan.host)}")
    if plan.swaps.reloads:
        lines.append(
            f"reloads, per step: {plan.swaps.reloads:g} programs, {plan.swaps.bytes:.0f} bytes, "
            f"{_whole(plan.swaps.cost)}"
        )
    return "\n".join(lines)


def _short(cost: Cost) -> str:
    return "unknown" if cost.latency is None else str(cost.latency).split(" (", maxsplit=1)[0]


def _whole(cost: Cost) -> str:
    parts = [str(quantity) for quantity in (cost.latency, cost.energy) if quantity is not None]
    return ", ".join([*parts, cost.unknown] if cost.unknown else parts)
