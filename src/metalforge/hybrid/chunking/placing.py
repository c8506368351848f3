"""Rows to places: `plan_chunks` splits a reservoir and puts its chunks on a device as long as they fit.

Rows fall into chunks of one size. Chunks go to the device, first rows first, while they fit side by side; what is left
over goes to software (`overflow="software"`), or shares the device by turns (`overflow="swap"`), and then every step
pays for loading programs again.

What chunks cost in a step, modelled: the device's calls and reloads from its profile, the host's share by roofline.

Reloads are counted by going through the programs on paper, in the order in which the network will call them.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from metalforge.core.errors import PlacementError, SpecError
from metalforge.core.substrate import Cost
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.paths import InputPlace, Ranges, device_lines, input_errors, input_place
from metalforge.hybrid.routing.encodings import encoding_of
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu import costs
from metalforge.substrates.npu.compile import CompiledLinear, compile_linear
from metalforge.substrates.npu.costs import programs_cost
from metalforge.substrates.npu.device import ResourceError, image_bytes
from metalforge.substrates.npu.emulator import EmulatedDevice
from metalforge.substrates.npu.mesh import Placement, side_by_side, units_on_chip
from metalforge.substrates.npu.program import Encoding
from metalforge.substrates.npu.residency import DevicePrograms
from metalforge.substrates.prices import HOST_STEPS, HostModel
from metalforge.substrates.profiles import DeviceProfile
from metalforge.substrates.profiles import profile as find_profile

from .plan import Chunk, ChunkPlan, Swaps, chunk_rows

__all__ = ["Overflow", "host_share", "plan_chunks", "software_bytes", "software_cost", "swap_cost"]

Overflow: TypeAlias = Literal["software", "swap"]
USUAL_UNITS = 128
"""Rows of a chunk where the profile does not say what a processor holds: the design documents' reservoir."""
FEW = (1, 2, 3, 4)
"""Numbers of equal chunks that are tried beside the size of an on-chip processor."""


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
    batch: int = 1,
    host: HostModel | None = None,
) -> ChunkPlan:
    """Return where each row of a reservoir goes.

    `chunk_units` rows are a chunk; None tries a few sizes (what an on-chip processor holds, and one to four equal
    chunks) and takes the plan with the most rows on the device, then that of the shortest modelled step. At most the
    first `device_units` rows go to the device (None: all that may). `ranges` are the largest |u| and |s| that lines
    show, as `HybridEsn.ranges`.
    """
    if overflow not in ("software", "swap"):
        raise SpecError(f"`overflow` must be software or swap. Got `{overflow}`")
    chip = find_profile(profile)
    rows = _Rows(weights, chip, precision, inputs, ranges, batch, host or HostModel())
    wanted = weights.units if device_units is None else device_units
    if wanted <= 0 or chunk_units is not None:
        return rows.plan(chunk_units or weights.units, wanted, overflow)
    plans = [rows.plan(size, wanted, overflow) for size in rows.sizes()]
    return min(plans, key=lambda p: (-p.device_units, _seconds(p)))


class _Placed(NamedTuple):
    """Where a chunk's programs are, or None; and what is to be said of it."""

    processors: tuple[str, ...] | None
    why: str


class _Rows:
    """A reservoir's matrix and ranges, ready to be cut at any size."""

    def __init__(
        self,
        weights: EsnWeights,
        chip: DeviceProfile,
        precision: str,
        inputs: InputPlace,
        ranges: Ranges | None,
        batch: int,
        host: HostModel,
    ) -> None:
        self.weights, self.chip, self.precision, self.batch, self.host = weights, chip, precision, batch, host
        self.encoding = encoding_of(precision)
        self.ranges = ranges or HybridEsn.from_weights(weights).ranges
        self.inputs = input_place(input_errors(weights, self.ranges, self.encoding), inputs)
        self.matrix, self.lines = device_lines(weights, self.ranges, self.inputs)

    def sizes(self) -> tuple[int, ...]:
        """Return the sizes of a chunk that are worth a try."""
        units, limit = self.weights.units, self.chip.mesh.onchip_bytes
        if limit is None:
            return (min(units, USUAL_UNITS),)
        onchip = units_on_chip(self.matrix.shape[1], limit.value) // self.encoding.digits
        sizes = {min(units, onchip)} | {-(-units // parts) for parts in FEW}
        return tuple(sorted(size for size in sizes if size))

    def plan(self, size: int, wanted: int, overflow: Overflow) -> ChunkPlan:
        """Return the plan for chunks of one size."""
        placed: list[Placement] = []
        chunks = []
        full = False
        for rows in chunk_rows(self.weights.units, size):
            if rows.stop > wanted:
                chunks.append(self._in_software(rows, "beyond the rows asked for on the device"))
                continue
            compiled = compile_linear(
                f"rows{rows.start}", self.matrix[rows.start : rows.stop], encoding=self.encoding, ranges=self.lines
            )
            found = _Placed(None, "the device is full") if full else _beside(self.chip, placed, compiled)
            full = full or found.processors is None
            if found.processors is None and overflow == "swap":
                _check_alone(self.chip, compiled)
                found = _Placed(("by turns",), found.why)
            if found.processors is None:
                chunks.append(self._in_software(rows, found.why))
            else:
                chunks.append(self._on_device(rows, compiled, found))
        on_device = [chunk for chunk in chunks if chunk.compiled is not None]
        swaps = swap_cost(self.chip, on_device)
        host = [chunk.cost for chunk in chunks if chunk.compiled is None]
        device = None
        if on_device:
            w_in = self.inputs == "host"
            host.append(host_share(self.weights, on_device, self.encoding, self.batch, self.host, w_in=w_in))
            calls = [chunk.cost for chunk in on_device]
            device = Cost.total([*calls, swaps.cost] if swaps.reloads else calls)
        return ChunkPlan(
            units=self.weights.units,
            profile=self.chip,
            precision=self.precision,
            ranges=self.ranges,
            inputs=self.inputs,
            chunks=tuple(chunks),
            swaps=swaps,
            device=device,
            host=Cost.total(host),
        )

    def _on_device(self, rows: range, compiled: CompiledLinear, found: _Placed) -> Chunk:
        vectors = self.batch * self.encoding.activation_bits // 4
        return Chunk(
            name=_name(rows),
            rows=rows,
            compiled=compiled,
            processors=found.processors or (),
            bytes=sum(map(image_bytes, compiled.programs)),
            cost=programs_cost(compiled.programs, vectors, self.chip),
            why=found.why,
        )

    def _in_software(self, rows: range, why: str) -> Chunk:
        cost = software_cost(self.weights, rows, self.batch, self.host)
        held = software_bytes(self.weights, rows)
        return Chunk(name=_name(rows), rows=rows, compiled=None, processors=(), bytes=held, cost=cost, why=why)


def _seconds(plan: ChunkPlan) -> float:
    return plan.device.latency.value if plan.device and plan.device.latency else float("inf")


def _name(rows: range) -> str:
    return f"rows {rows.start} .. {rows.stop - 1}"


def _beside(chip: DeviceProfile, placed: list[Placement], compiled: CompiledLinear) -> _Placed:
    """Put a chunk's programs beside those that are `placed`: all of them or none."""
    try:
        found = side_by_side(compiled.programs, chip, placed)
    except ResourceError as error:
        return _Placed(None, str(error).splitlines()[0])
    placed += found
    rows = [row for placement in found for row in placement.rows]
    return _Placed(tuple(row.processor for row in rows), rows[0].why)


def _check_alone(chip: DeviceProfile, compiled: CompiledLinear) -> None:
    """Return if each of a chunk's programs fits an empty device; raises PlacementError otherwise."""
    for program in compiled.programs:
        try:
            side_by_side([program], chip)
        except ResourceError as error:
            raise PlacementError(f"{error}\nhint: smaller `chunk_units`") from error


def swap_cost(chip: DeviceProfile, chunks: Sequence[Chunk]) -> Swaps:
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
    reloads, moved = (tenants.reloads - before) / 2, (tenants.reloaded_bytes - sent) / 2
    everything = Cost.total(costs.load_cost(program, chip) for program in programs.values())
    share = moved / sum(map(image_bytes, programs.values()))
    return Swaps(reloads=reloads, bytes=moved, cost=everything * share)


def software_bytes(weights: EsnWeights, rows: range) -> int:
    """Return the bytes of some rows' weights, in full."""
    return len(rows) * (weights.units + weights.inputs + weights.feedback + 1) * weights.dtype.itemsize


def software_cost(weights: EsnWeights, rows: range, batch: int, model: HostModel) -> Cost:
    """Price the product of some rows on the host; a sparse matrix costs what a full one does at most."""
    flops = 2.0 * batch * len(rows) * (weights.units + weights.inputs + weights.feedback)
    return model.call(flops, software_bytes(weights, rows), "f32" if weights.dtype == np.float32 else "f64")


def host_share(
    weights: EsnWeights, chunks: Sequence[Chunk], encoding: Encoding, batch: int, model: HostModel, *, w_in: bool
) -> Cost:
    """Price what the host does for chunks on the device: encode lines, join potentials, activate, W_in if it is his."""
    programs = [program for chunk in chunks if chunk.compiled for program in chunk.compiled.programs]
    numbers = sum(p.inputs + p.layers[-1].units for p in programs) * encoding.activation_bits // 4
    numbers += weights.units * (1 + weights.inputs * w_in)
    return model.call(HOST_STEPS * batch * numbers, 8.0 * batch * numbers, "f64")
