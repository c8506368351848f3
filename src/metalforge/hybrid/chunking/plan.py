"""Where the rows of a reservoir go, and what a step of them takes, as data; `placing` makes it, `ChunkedEsn` runs it.

Times are modelled: the device's from its profile, the host's from a roofline of this machine. They are shown side by
side and not added up.
"""

from dataclasses import dataclass
from typing import Literal

from metalforge.core.errors import SpecError
from metalforge.core.substrate import Cost
from metalforge.hybrid.esn.paths import Ranges
from metalforge.substrates.npu.compile import CompiledLinear
from metalforge.substrates.profiles import DeviceProfile

__all__ = ["Chunk", "ChunkPlan", "Swaps", "chunk_rows"]


HEADER = ("chunk", "place", "programs", "processors", "bytes", "a step", "why")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chunk:
    """Some rows and where they go. On the device it has programs; `cost` is one step's, without reloads."""

    name: str
    rows: range
    compiled: CompiledLinear | None
    processors: tuple[str, ...]
    """Where its programs are; "by turns" where they share processors with those of other chunks."""
    bytes: int
    """What it sends to the device when it is loaded, or holds in the host's memory."""
    cost: Cost
    why: str

    @property
    def place(self) -> Literal["device", "software"]:
        """Where its product is computed."""
        return "software" if self.compiled is None else "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Swaps:
    """Programs loaded again in each step, on average over a step forwards and one backwards, and what that costs."""

    reloads: float
    bytes: float
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChunkPlan:
    """A reservoir over a device and the host: printable (`str`), and all that `ChunkedEsn` needs."""

    units: int
    profile: DeviceProfile
    precision: str
    ranges: Ranges
    inputs: Literal["device", "host"]
    """Where W_in is: decided once for all rows, so that every row has one quantisation."""
    chunks: tuple[Chunk, ...]
    swaps: Swaps
    device: Cost | None
    """Device time and energy of a step, reloads included; None where nothing is on the device."""
    host: Cost

    @property
    def device_units(self) -> int:
        """Rows whose product is on the device."""
        return sum(len(chunk.rows) for chunk in self.chunks if chunk.compiled is not None)

    @property
    def programs(self) -> int:
        """Programs on the device."""
        return sum(len(chunk.compiled.programs) for chunk in self.chunks if chunk.compiled is not None)

    def __str__(self) -> str:
        """Return a table with a line a chunk, and what a step takes."""
        return table(self)


def chunk_rows(units: int, size: int) -> tuple[range, ...]:
    """Return rows 0 .. units in runs of `size`; the last may be shorter."""
    if units < 1 or size < 1:
        raise SpecError(f"rows are split into chunks of at least one. Got {units} units, chunks of {size}")
    return tuple(range(start, min(start + size, units)) for start in range(0, units, size))


def cells(chunk: Chunk) -> tuple[str, ...]:
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


def table(plan: ChunkPlan) -> str:
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
