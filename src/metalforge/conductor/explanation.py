"""What so many heads take on a chip, under every shipped profile: processors, time and energy of a step and a query."""

from typing import NamedTuple

import numpy as np

from metalforge.core.pages import aligned
from metalforge.core.quantities import Quantity
from metalforge.core.substrate import Cost
from metalforge.hybrid.routing.encodings import encoding_of
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu import costs, mesh
from metalforge.substrates.npu.compile import compile_linear
from metalforge.substrates.npu.device import ResourceError
from metalforge.substrates.npu.program import Activation, FullyConnected, Head, Program
from metalforge.substrates.profiles import PROFILES, DeviceProfile, NeuronMesh

from .device_pass import READOUT_PRECISION

SCALED_HEADS = (2, 4, 8, 11, 20, 55)
"""The rows of design document 004's scaling table; heads of one output each."""


class Scaling(NamedTuple):
    """A row: what so many heads take under a profile, or why they do not fit.

    `taken` and `free` are processors that can hold a layer, or NPs where the profile counts those. `step` moves the
    state; `query` is what reading every head costs on top, nothing where it is the same call.
    """

    heads: int
    outputs: int
    profile: str
    unit: str
    taken: int
    free: int
    processors: str
    step: Cost
    query: Cost
    refused: str = ""


class Explanation(tuple[Scaling, ...]):
    """The rows, printable as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return the rows as a table."""
        cells: list[tuple[str, ...]] = [("heads", "outputs", "profile", "taken", "free", "step", "query", "energy")]
        for row in self:
            what = [row.refused, "", ""]
            if not row.refused:
                energy = Cost.total([row.step, row.query]).energy
                what = [_figure(q) for q in (row.step.latency, row.query.latency, energy)]
            taken = "-" if row.refused else f"{row.taken} {row.unit}"
            cells.append((str(row.heads), str(row.outputs), row.profile, taken, str(row.free), *what))
        return "\n".join(["modelled from the profile of the row; energy is of a step and a query", *aligned(cells)])


def explanation_of(weights: EsnWeights) -> Explanation:
    """Return what a program of these weights, and programs of 2 to 55 heads, take; printable."""
    assert weights.heads is not None
    seen = weights.inputs * weights.passthrough + weights.units  # the lines of the readout
    sizes = sorted({*((n, n) for n in SCALED_HEADS), (len(weights.heads.heads), weights.outputs)})
    return Explanation(
        _row(weights.inputs, weights.units, n, width, seen, profile)
        for n, width in sizes
        for profile in PROFILES.values()
    )


def _row(inputs: int, units: int, heads: int, outputs: int, seen: int, chip: DeviceProfile) -> Scaling:
    as_one = isinstance(chip.mesh, NeuronMesh)
    unit, total = ("NPs", chip.mesh.neural_processors.value) if as_one else ("processors", chip.mesh.layer_processors)
    try:
        taken, where, step, query = (_as_one if as_one else _as_two)(inputs, units, heads, outputs, seen, chip)
        refused = ""
    except ResourceError as error:
        taken, where, refused = 0, "", str(error).splitlines()[0]
        step = query = Cost(unknown="does not fit")
    return Scaling(heads, outputs, chip.name, unit, taken, total - taken, where, step, query, refused)


def _as_two(
    inputs: int, units: int, heads: int, outputs: int, seen: int, chip: DeviceProfile
) -> tuple[int, str, Cost, Cost]:
    """Return what reservoir and merged heads take side by side; weights do not matter to it."""
    one = np.ones((1, 1))
    reservoir = compile_linear("reservoir", np.broadcast_to(one, (units, inputs + units)), encoding=encoding_of("W8A8"))
    merged = compile_linear("heads", np.broadcast_to(one, (outputs, seen)), encoding=encoding_of(READOUT_PRECISION))
    placed = mesh.side_by_side((*reservoir.programs, *merged.programs), chip)
    where = ", ".join(row.processor for placement in placed for row in placement.rows)
    step, query = (costs.programs_cost(layer.programs, chip) for layer in (reservoir, merged))
    return sum(len(p.processors) for p in placed), where, step, query


def _as_one(
    inputs: int, units: int, heads: int, outputs: int, seen: int, chip: DeviceProfile
) -> tuple[int, str, Cost, Cost]:
    """Return what the design documents' single program takes: its heads are counted, whatever their width."""
    layers = (
        FullyConnected(
            name="reservoir", weights=np.ones((inputs + units, units), np.int8), activation=Activation.BOUNDED_RELU
        ),
        FullyConnected(name="heads", weights=np.ones((units, outputs), np.int8)),
    )
    widths = np.array_split(np.arange(outputs), heads)
    named = tuple(Head(name=f"head {i}", start=int(w[0]), width=len(w)) for i, w in enumerate(widths))
    program = Program(name="conductor", layers=layers, heads=named)
    placed = mesh.plan(program, chip)
    call = costs.cost(program, 1, chip)
    where = f"NP {placed.span.start} .. {placed.span.stop - 1}"
    return len(placed.span), where, call, call * 0.0


def _figure(quantity: Quantity | None) -> str:
    return "same call" if quantity is None or not quantity.value else str(quantity).split(" (")[0]
