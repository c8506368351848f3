"""Where the rows of a reservoir go, and what a step takes: `plan_chunks` plans it, `HybridEsn.with_chunks` runs it.

Rows fall into chunks of one size. Chunks go to the device, first rows first, while they fit side by side; what is left
over goes to software (`overflow="software"`), or shares the device by turns (`overflow="swap"`), and then every step
pays for loading programs again: counted by going through them on paper, in the order in which the network calls them.

Times are modelled: the device's from its profile, the host's from a roofline of this machine. They are shown side by
side and not added up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from metalforge.core import BriefRepr, Cost, PlacementError, aligned, require_one_of
from metalforge.hybrid.routing.candidates import rows_on_chip, split_rows
from metalforge.hybrid.routing.encodings import encoding_of
from metalforge.hybrid.routing.plan import short
from metalforge.reservoir import EsnWeights, Ranges
from metalforge.substrates import (
    HOST_STEPS,
    CompiledLinear,
    DeviceProfile,
    DevicePrograms,
    EmulatedDevice,
    HostModel,
    Placement,
    ResourceError,
    compile_linear,
    costs,
    image_bytes,
    side_by_side,
)
from metalforge.substrates import profile as find_profile

from .paths import InputPlace, default_ranges, device_lines, input_place

Overflow: TypeAlias = Literal["software", "swap"]
HEADER = ("chunk", "place", "programs", "processors", "bytes", "a step", "why")
USUAL_UNITS = 128
"""Rows of a chunk where the profile does not say what a processor holds: the design documents' reservoir."""
FEW = (1, 2, 3, 4)
"""Numbers of equal chunks that are tried beside the size of an on-chip processor."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Chunk(BriefRepr):
    """Some rows and where they go. On the device it has programs; `cost` is one step's, without reloads."""

    name: str
    rows: range
    compiled: CompiledLinear | None = None
    processors: tuple[str, ...] = ()
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ChunkPlan(BriefRepr):
    """A reservoir over a device and the host: printable (`str`), and all that `HybridEsn.with_chunks` needs."""

    units: int
    profile: DeviceProfile
    precision: str
    inputs: Literal["device", "host"]
    """Where W_in is: decided once for all rows, so that every row has one quantisation."""
    ranges: Ranges
    """The largest |u| and |s| of the device's lines."""
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
        """Return a table with a line per chunk, and what a step takes."""
        count, left = len(self.chunks), self.units - self.device_units
        lines = [
            f"{self.units} units in {count} chunk{'s' * (count > 1)}: {self.device_units} on {self.profile.name} at "
            f"{self.precision}, W_in on the {self.inputs}, {left} in software"
        ]
        lines += aligned([HEADER, *map(_cells, self.chunks)])
        if self.device is not None:
            lines.append(f"device, per step: {self.device}")
        lines.append(f"host, per step: {self.host}")
        if self.swaps.reloads:
            lines.append(
                f"reloads, per step: {self.swaps.reloads:g} programs, {self.swaps.bytes:.0f} bytes, {self.swaps.cost}"
            )
        return "\n".join(lines)


def plan_chunks(
    weights: EsnWeights,
    profile: DeviceProfile | str = "akd1000-published",
    *,
    precision: str = "W4A8",
    chunk_units: int | None = None,
    device_units: int | None = None,
    overflow: Overflow = "software",
    inputs: InputPlace = "auto",
    ranges: Ranges | None = None,
) -> ChunkPlan:
    """Return where each row of a reservoir goes.

    `chunk_units` rows are a chunk; None tries a few sizes (what an on-chip processor holds, and one to four equal
    chunks) and takes the plan with the most rows on the device, then that of the shortest modelled step. At most the
    first `device_units` rows go to the device (None: all that may). `ranges` are the largest |u| and |s| that lines
    show, as `HybridEsn.ranges`.
    """
    require_one_of("software", "swap", overflow=overflow)
    rows = _Rows(weights, find_profile(profile), precision, inputs, ranges)
    wanted = weights.units if device_units is None else device_units
    if wanted <= 0 or chunk_units is not None:
        return rows.plan(chunk_units or weights.units, wanted, overflow)
    plans = [rows.plan(size, wanted, overflow) for size in rows.sizes()]
    return min(plans, key=lambda p: (-p.device_units, _seconds(p)))


class _Rows:
    """A reservoir's matrix and ranges, ready to be cut at any size."""

    def __init__(
        self, weights: EsnWeights, chip: DeviceProfile, precision: str, inputs: InputPlace, ranges: Ranges | None
    ) -> None:
        self.weights, self.chip, self.precision = weights, chip, precision
        self.encoding, self.host = encoding_of(precision), HostModel()
        self.ranges = ranges or default_ranges(weights)
        self.inputs = input_place(weights, self.ranges, self.encoding, inputs)
        self.matrix, self.lines = device_lines(weights, self.ranges, self.inputs)

    def sizes(self) -> tuple[int, ...]:
        """Return the sizes of a chunk that are worth a try."""
        units = self.weights.units
        onchip = rows_on_chip(self.matrix.shape[1], self.encoding.digits, self.chip)
        if onchip is None:
            return (min(units, USUAL_UNITS),)
        sizes = {min(units, onchip)} | {-(-units // parts) for parts in FEW}
        return tuple(sorted(size for size in sizes if size))

    def plan(self, size: int, wanted: int, overflow: Overflow) -> ChunkPlan:
        """Return the plan for chunks of one size."""
        placed: list[Placement] = []
        chunks: list[Chunk] = []
        why = ""  # the device is full from the first chunk on that does not fit
        for span in split_rows(self.weights.units, size):
            rows = range(span.start, span.stop)
            if rows.stop > wanted:
                chunks.append(self._chunk(rows, "beyond the rows asked for on the device"))
                continue
            matrix = self.matrix[span]
            compiled = compile_linear(f"rows{rows.start}", matrix, encoding=self.encoding, ranges=self.lines)
            try:
                if why:
                    raise ResourceError("the device is full")
                found = side_by_side(compiled.programs, self.chip, placed)
            except ResourceError as error:
                why = str(error).splitlines()[0]
                software = overflow == "software"
                chunks.append(self._chunk(rows, why) if software else self._by_turns(rows, compiled, why))
                continue
            placed += found
            processors = [row for placement in found for row in placement.rows]
            chunks.append(self._chunk(rows, processors[0].why, compiled, tuple(p.processor for p in processors)))
        on_device = [chunk for chunk in chunks if chunk.compiled is not None]
        swaps = _swaps(self.chip, on_device)
        host = [chunk.cost for chunk in chunks if chunk.compiled is None]
        device = None
        if on_device:
            host.append(self._host_share(on_device))
            calls = [chunk.cost for chunk in on_device]
            device = Cost.total([*calls, swaps.cost] if swaps.reloads else calls)
        return ChunkPlan(
            units=self.weights.units,
            profile=self.chip,
            precision=self.precision,
            inputs=self.inputs,
            ranges=self.ranges,
            chunks=tuple(chunks),
            swaps=swaps,
            device=device,
            host=Cost.total(host),
        )

    def _chunk(
        self, rows: range, why: str, compiled: CompiledLinear | None = None, processors: tuple[str, ...] = ()
    ) -> Chunk:
        """Price the product of some rows; on the host a sparse matrix costs what a full one does at most."""
        if compiled is None:
            w = self.weights
            lines = w.units + w.inputs + w.feedback
            held = len(rows) * (lines + 1) * w.dtype.itemsize
            cost = self.host.call(2.0 * len(rows) * lines, held, "f32" if w.dtype == np.float32 else "f64")
        else:
            held = sum(map(image_bytes, compiled.programs))
            cost = costs.programs_cost(compiled.programs, self.chip)
        name = f"rows {rows.start} .. {rows.stop - 1}"
        return Chunk(name=name, rows=rows, compiled=compiled, processors=processors, bytes=held, cost=cost, why=why)

    def _by_turns(self, rows: range, compiled: CompiledLinear, why: str) -> Chunk:
        """Return a chunk whose programs each fit an empty device; raises PlacementError otherwise."""
        for program in compiled.programs:
            try:
                side_by_side([program], self.chip)
            except ResourceError as error:
                raise PlacementError(f"{error}\nhint: smaller `chunk_units`") from error
        return self._chunk(rows, why, compiled, ("by turns",))

    def _host_share(self, chunks: Sequence[Chunk]) -> Cost:
        """Price what the host does for the device: encode lines, join potentials, activate, W_in if it is here."""
        programs = [program for chunk in chunks if chunk.compiled for program in chunk.compiled.programs]
        numbers = sum(p.inputs + p.layers[-1].units for p in programs) * self.encoding.rows
        numbers += self.weights.units * (1 + self.weights.inputs * (self.inputs == "host"))
        return self.host.call(HOST_STEPS * numbers, 8.0 * numbers, "f64")


def _swaps(chip: DeviceProfile, chunks: Sequence[Chunk]) -> Swaps:
    """Return what a step loads again where the chunks' programs do not fit side by side."""
    programs = {f"{c.name}/{p.name}": p for c in chunks if c.compiled for p in c.compiled.programs}
    if not programs:
        return Swaps(reloads=0.0, bytes=0.0, cost=Cost())
    tenants = DevicePrograms(EmulatedDevice(chip), by_turns=True)
    forwards = [tenants.add(name, program) for name, program in programs.items()]
    before, sent = 0, 0
    for _ in range(2):  # the first time the order of the turns settles; the second counts
        before, sent = tenants.reloads, tenants.reloaded_bytes
        for name in [*forwards, *reversed(forwards)]:
            tenants.bring(name)
    moved = (tenants.reloaded_bytes - sent) / 2
    everything = Cost.total(costs.load_cost(program, chip) for program in programs.values())
    share = moved / sum(map(image_bytes, programs.values()))
    return Swaps(reloads=(tenants.reloads - before) / 2, bytes=moved, cost=everything * share)


def _seconds(plan: ChunkPlan) -> float:
    return plan.device.latency.value if plan.device and plan.device.latency else float("inf")


def _cells(chunk: Chunk) -> tuple[str, ...]:
    """Return a row of the table, as `HEADER` names it."""
    return (
        chunk.name,
        chunk.place,
        "-" if chunk.compiled is None else str(len(chunk.compiled.programs)),
        ", ".join(chunk.processors) or "-",
        str(chunk.bytes),
        short(chunk.cost.latency) if chunk.cost.latency else "unknown",
        chunk.why,
    )
