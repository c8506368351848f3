r"""What a conductor takes of a chip by its number of heads: a published table, under every profile that ships.

All heads are the rows of one fully connected layer: their number is its width, and the chip's own count hardly moves
with it (one processor for the reservoir, one for the heads, two calls). The design documents count otherwise, and that
is kept for profiles with the accounting `neurons`, where reservoir and heads are *one* program and one call:

    NPs = 179 + 12 N          203, 227, 275, 311, 419, 839 for N = 2, 4, 8, 11, 20, 55

That program has no host between its layers, so its activation would be the chip's bounded ReLU. Three more of the
design's figures do not follow from its own: 10.4 uJ a pass are neither 54 us at the 270 mW it names (14.6 uJ) nor the
1.4 uJ of design document 000; a batch of 8 in 3.12 ms is 7 times slower than 8 passes of 54 us; and the chip has 78
processors.
"""

from typing import NamedTuple

import numpy as np

from metalforge.core.quantities import Quantity
from metalforge.core.substrate import Cost
from metalforge.hybrid.routing.encodings import encoding_of
from metalforge.substrates.npu import costs, mesh
from metalforge.substrates.npu.compile import compile_linear
from metalforge.substrates.npu.device import ResourceError
from metalforge.substrates.npu.program import Activation, FullyConnected, Head, Program
from metalforge.substrates.profiles import PROFILES, DeviceProfile

__all__ = ["READOUT_PRECISION", "SCALED_HEADS", "Explanation", "Scaling", "explain"]

SCALED_HEADS = (2, 4, 8, 11, 20, 55)
"""The rows of design document 004's scaling table; heads of one output each."""
READOUT_PRECISION = "W12A12"
"""Plain int4 readouts break regression (three digits lose 0.05 %): the merged layer takes three."""


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
        widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
        note = "modelled from the profile of the row; energy is of a step and a query"
        return f"{note}\n" + "\n".join(
            "  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)).rstrip() for line in cells
        )


def explain(inputs: int, units: int, heads: int, outputs: int, *, seen: int) -> Explanation:
    """Return the rows of a reservoir of this size: the design's numbers of heads, and this one with its outputs.

    `seen` are the lines of the readout: the units, and the inputs where they go past the reservoir.
    """
    sizes = sorted({*((n, n) for n in SCALED_HEADS), (heads, outputs)})
    return Explanation(
        _row(inputs, units, n, width, seen, profile) for n, width in sizes for profile in PROFILES.values()
    )


def _row(inputs: int, units: int, heads: int, outputs: int, seen: int, chip: DeviceProfile) -> Scaling:
    as_one = chip.mesh.accounting == "neurons"
    unit, total = ("NPs", chip.neural_processors) if as_one else ("processors", chip.layer_processors)
    try:
        taken, where, step, query = (_as_one if as_one else _as_two)(inputs, units, heads, outputs, seen, chip)
    except ResourceError as error:
        none = Cost(unknown="does not fit")
        return Scaling(heads, outputs, chip.name, unit, 0, total, "", none, none, refused=str(error).splitlines()[0])
    return Scaling(heads, outputs, chip.name, unit, taken, total - taken, where, step, query)


def _as_two(
    inputs: int, units: int, heads: int, outputs: int, seen: int, chip: DeviceProfile
) -> tuple[int, str, Cost, Cost]:
    """Return what reservoir and merged heads take side by side; weights do not matter to it."""
    one = np.ones((1, 1))
    reservoir = compile_linear("reservoir", np.broadcast_to(one, (units, inputs + units)), encoding=encoding_of("W8A8"))
    merged = compile_linear("heads", np.broadcast_to(one, (outputs, seen)), encoding=encoding_of(READOUT_PRECISION))
    placed = mesh.side_by_side((*reservoir.programs, *merged.programs), chip)
    where = ", ".join(row.processor for placement in placed for row in placement.rows)
    # One input: the nibbles of its activations are so many rows.
    step, query = (
        costs.programs_cost(layer.programs, layer.programs[0].encoding.activation_bits // 4, chip)
        for layer in (reservoir, merged)
    )
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
