"""What ops cost: on the host from a roofline, on the device from its profile. All of it is modelled, and says so.

Host: one call an op; its arithmetic, and the bytes that come from memory. Weights come from memory only where those of
the whole model do not fit the largest cache, for a model that runs again and again finds them there otherwise.

Device: `substrates.npu.costs`, one call a program. The profiles' figure of a call is a round trip as a host sees it, so
moving inputs and outputs is in it already: a plan shows their bytes, and what they would take over the link by
themselves, but does not charge them again.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Literal, Protocol, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from metalforge.core.capabilities import Trait
from metalforge.core.quantities import Modelled, Quantity
from metalforge.core.substrate import Cost
from metalforge.core.workload import Workload
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.ops import Elementwise, FanOut, RecurrentStep, Shape
from metalforge.reservoir.sparse import BlockSparse
from metalforge.substrates.cpu import CpuSubstrate
from metalforge.substrates.npu import costs
from metalforge.substrates.npu.device import PowerMode
from metalforge.substrates.npu.program import Encoding, FullyConnected, Program
from metalforge.substrates.profiles import DeviceProfile

from .jobs import Job, LinearJob

__all__ = [
    "HostModel",
    "Objective",
    "Pricer",
    "add_costs",
    "device_cost",
    "push_cost",
    "score",
    "shape_cost",
    "share_of",
]

Objective: TypeAlias = Literal["latency", "energy", "accuracy", "hw_only"]
NO_POWER = "no power figure for the host: give host_power_w"
HOST_STEPS = 4
"""Operations that encoding an input line, or joining a potential, takes on the host: multiply, round, clip, shift."""


class Pricer(Protocol):
    """Something that prices a call: a substrate or a roofline."""

    def cost(self, workload: Workload) -> Cost:
        """Price one call of `workload`."""
        ...


class HostModel:
    """Prices work on the host by means of a pricer; this machine's CPU unless another is given."""

    def __init__(
        self, pricer: Pricer | None = None, *, power_w: float | None = None, cache_bytes: int | None = None
    ) -> None:
        if pricer is None:
            cpu = CpuSubstrate()
            caches = [cpu.info.properties.get(name, 0) for name in ("l2_bytes", "l3_bytes")]
            cache_bytes = max(int(size) for size in caches) if cache_bytes is None else cache_bytes
            pricer = cpu
        self._pricer = pricer
        self._power_w = power_w
        self._cache_bytes = cache_bytes or 0
        latency = self.call(1.0, 1.0).latency
        self.profile = latency.profile if isinstance(latency, Modelled) else "unknown host"

    def op(self, node: Node, graph: OpGraph, batch: int = 1) -> Cost:
        """Price a node for `batch` samples."""
        if isinstance(node.op, FanOut) or (isinstance(node.op, Elementwise) and node.op.function == "identity"):
            return self.nothing()
        item = 4 if graph.dtype == "float32" else 8
        shapes = [graph.shapes[value] for value in (*node.inputs, *node.outputs)]
        moved = item * batch * sum(_entries(shape) for shape in shapes)
        if item * sum(n.op.parameters for n in graph.nodes) > self._cache_bytes:
            moved += item * _stored(node)
        return self.call(batch * _flops(node, graph), moved, "f32" if item == 4 else "f64")

    def share(self, job: Job, graph: OpGraph, batch: int = 1) -> Cost:
        """Price what the host does for a job: encode, join, and what follows the product."""
        nibbles = job.encoding.activation_bits // 4
        lines = sum(program.inputs for program in job.programs)
        units = sum(program.layers[-1].units for program in job.programs)
        outputs = sum(_entries(graph.shapes[graph[name].outputs[0]]) for name in job.nodes)
        flops = HOST_STEPS * (job.positions * nibbles * (lines + units) + outputs)
        return self.call(batch * flops, batch * 8.0 * (job.positions * (lines + units) + outputs), "f64")

    def call(self, flops: float, moved: float, precision: str = "f32") -> Cost:
        """Price one call of so many operations and bytes."""
        cost = self._pricer.cost(
            Workload(
                name="op",
                summary="one op of a graph",
                needs=(Trait.F32,),
                size="one call",
                flops=max(flops, 1.0),
                bytes_moved=max(moved, 1.0),
                precision=precision,
            )
        )
        if cost.energy is not None or cost.latency is None:
            return cost
        if self._power_w is None:
            return Cost(latency=cost.latency, unknown=NO_POWER)
        profile = f"{getattr(cost.latency, 'profile', 'host')} at {self._power_w:g} W"
        energy = Modelled(value=cost.latency.value * self._power_w, unit="J", profile=profile)
        return Cost(latency=cost.latency, energy=energy)

    def nothing(self) -> Cost:
        """Price what takes no time at all."""
        one = self.call(1.0, 1.0)
        return Cost(
            latency=None if one.latency is None else one.latency * 0.0,
            energy=None if one.energy is None else one.energy * 0.0,
            unknown=one.unknown,
        )


def device_cost(programs: Sequence[Program], rows: int, profile: DeviceProfile) -> Cost:
    """Price one call of each program with so many chip rows."""
    return add_costs([costs.cost(program, rows, profile) for program in programs])


def shape_cost(lines: int, outputs: int, encoding: Encoding, vectors: int, profile: DeviceProfile) -> float:
    """Return the seconds of one call of a layer that is known by its shape only."""
    layer = FullyConnected(name="shape", weights=np.zeros((lines, outputs * encoding.digits), np.int8))
    program = Program(name="shape", layers=(layer,))
    rows = vectors * encoding.activation_bits // 4
    return costs.call_seconds(program, rows, profile, PowerMode.PERFORMANCE)


def push_cost(job: LinearJob, profile: DeviceProfile) -> Cost:
    """Price new weights for a job: one update a program."""
    return add_costs([costs.update_cost(p.layers[0].weights.nbytes, profile) for p in job.programs])


def add_costs(parts: Iterable[Cost]) -> Cost:
    """Return the sum; what is unknown in one part is unknown in the sum. At least one part is wanted."""
    all_parts = list(parts)
    latency, energy = _sum([c.latency for c in all_parts]), _sum([c.energy for c in all_parts])
    unknown = "; ".join(dict.fromkeys(c.unknown for c in all_parts if c.unknown))
    return Cost(latency=latency, energy=energy, unknown=unknown)


def share_of(cost: Cost, part: float) -> Cost:
    """Return a part of a cost."""
    return Cost(
        latency=None if cost.latency is None else cost.latency * part,
        energy=None if cost.energy is None else cost.energy * part,
        unknown=cost.unknown,
    )


def score(cost: Cost, objective: Objective) -> tuple[float, float]:
    """Return what is to be small: first whether there is no figure, then the figure."""
    quantity = cost.energy if objective == "energy" else cost.latency
    return (1.0, 0.0) if quantity is None else (0.0, quantity.value)


def _sum(quantities: Sequence[Quantity | None]) -> Quantity | None:
    total: Quantity | None = None
    for quantity in quantities:
        if quantity is None:
            return None
        total = quantity if total is None else total + quantity  # type: ignore[operator]  # mixing raises
    return total


def _flops(node: Node, graph: OpGraph) -> float:
    """Return operations for one sample; sparse matrices count what they hold."""
    shapes = [graph.shapes[value] for value in node.inputs]
    if isinstance(node.op, RecurrentStep):
        return 2.0 * _stored(node)
    return node.op.flops(shapes)


def _stored(node: Node) -> int:
    """Return the numbers that an op keeps."""
    if not isinstance(node.op, RecurrentStep):
        return node.op.parameters
    w = node.op.weights
    if isinstance(w.w_res, csr_array):
        held = int(w.w_res.nnz)
    else:
        held = int(w.w_res.values.size) if isinstance(w.w_res, BlockSparse) else w.units * w.units
    return held + w.units * (w.inputs + 1)


def _entries(shape: Shape) -> int:
    return prod(n or 1 for n in shape)
