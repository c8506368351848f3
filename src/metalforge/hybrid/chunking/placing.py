"""Rows to places: `plan_chunks` splits a reservoir and puts its chunks on a device as long as they fit.

Rows fall into chunks of one size. Chunks go to the device, first rows first, while they fit side by side; what is left
over goes to software (`overflow="software"`), or shares the device by turns (`overflow="swap"`), and then every step
pays for loading programs again.
"""

from typing import Literal, NamedTuple, TypeAlias

from metalforge.core.errors import PlacementError, SpecError
from metalforge.core.substrate import Cost
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.paths import InputPlace, Ranges, device_lines, input_errors, input_place
from metalforge.hybrid.routing.precision import encoding_of
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.compile import CompiledLinear, compile_linear
from metalforge.substrates.npu.costs import programs_cost
from metalforge.substrates.npu.device import ResourceError, image_bytes
from metalforge.substrates.npu.mesh import Placement, side_by_side, units_on_chip
from metalforge.substrates.prices import HostModel
from metalforge.substrates.profiles import DeviceProfile
from metalforge.substrates.profiles import profile as find_profile

from .plan import Chunk, ChunkPlan, chunk_rows
from .prices import host_share, software_bytes, software_cost, swap_cost

__all__ = ["Overflow", "plan_chunks"]

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
