"""What a plan is asked for, and what ops and jobs cost by the price lists of `substrates`.

Host: one call per op; its arithmetic, and the bytes that come from memory. Weights come from memory only where those of
the whole model do not fit the largest cache, for a model that runs again and again finds them there otherwise.

Device: one call a program. The profiles' figure of a call is a round trip as a host sees it, so moving inputs and
outputs is in it already: a plan shows their bytes, and what they would take over the link by themselves, but does not
charge them again.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from metalforge.core.errors import require_at_least, require_known, require_positive
from metalforge.core.substrate import Cost
from metalforge.hybrid.model.graph import Node, OpGraph
from metalforge.hybrid.model.ops import Elementwise, FanOutOp, entries
from metalforge.substrates.npu import costs
from metalforge.substrates.prices import HOST_STEPS, HostModel, Objective
from metalforge.substrates.profiles import DeviceProfile

from .encodings import encoding_of
from .jobs import DeviceJob, LinearJob


def op_cost(host: HostModel, node: Node, graph: OpGraph, batch: int = 1) -> Cost:
    """Price a node on the host for `batch` samples."""
    if isinstance(node.op, FanOutOp) or (isinstance(node.op, Elementwise) and node.op.function == "identity"):
        return host.nothing()
    item = 4 if graph.dtype == "float32" else 8
    shapes = [graph.shapes[value] for value in (*node.inputs, *node.outputs)]
    moved = item * batch * sum(entries(shape) for shape in shapes)
    if item * graph.parameters > host.cache_bytes:
        moved += item * node.op.parameters
    flops = node.op.flops([graph.shapes[value] for value in node.inputs])
    return host.call(batch * flops, moved, "f32" if item == 4 else "f64")


def share_cost(host: HostModel, job: DeviceJob, graph: OpGraph, batch: int = 1) -> Cost:
    """Price what the host does for a job: encode, join, and what follows the product."""
    nibbles = job.encoding.rows
    lines = sum(program.inputs for program in job.programs)
    units = sum(program.layers[-1].units for program in job.programs)
    outputs = sum(entries(graph.shapes[graph[name].outputs[0]]) for name in job.nodes)
    flops = HOST_STEPS * (job.positions * nibbles * (lines + units) + outputs)
    return host.call(batch * flops, batch * 8.0 * (job.positions * (lines + units) + outputs), "f64")


def push_cost(job: LinearJob, profile: DeviceProfile) -> Cost:
    """Price new weights for a job: one update a program."""
    return Cost.total(costs.update_cost(p.layers[0].weights.nbytes, profile) for p in job.programs)


Policy: TypeAlias = Literal["default", "seed"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wishes:
    """`tolerance` is the relative error that a quantised op may have, `batch` the samples of one call."""

    policy: Policy
    objective: Objective
    profile: DeviceProfile
    tolerance: float
    host: HostModel
    batch: int
    precision: str | None = None
    """Such as W4A8: the encoding of everything on the device, whatever its error."""

    def __post_init__(self) -> None:
        require_known("policy", self.policy, get_args(Policy))
        require_known("objective", self.objective, get_args(Objective))
        require_positive(tolerance=self.tolerance)
        require_at_least(1, batch=self.batch)
        if self.precision is not None:
            encoding_of(self.precision)  # raises for what is none
