"""Where a program goes on the chip, or why it does not fit: a placement with a row for each layer.

Two ways of counting, by the profile's `accounting`. `processors`: one layer takes one processor that can hold fully
connected layers, on chip if its bytes fit there, else one with external memory. The byte rule is this project's own
and overstates on purpose: whatever the weight bits, a byte per weight, rounded up to 32 for each unit, and 32 more
for its threshold, step and bookkeeping. What fits by it should fit the chip; the vendor's tools decide in the end.
`neurons`: the design documents' accounting, in which a program takes a fixed number of "NPs" and a few more for each
head.

The vendor's interface holds one program on a device at a time. Several side by side, as the design documents propose,
share the same processors here.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from metalforge.core import aligned
from metalforge.substrates.profiles import DeviceProfile, NeuronMesh, ProcessorMesh
from metalforge.substrates.profiles import profile as find_profile

from .device import ResourceError, image_bytes
from .program import FullyConnected, Program

GRANULE = 32
"""Bytes that a unit's weights are rounded up to, and that each unit needs besides (rule of our own; see above)."""


class PlacedLayer(NamedTuple):
    """One line of a placement."""

    layer: str
    processor: str
    bytes: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a program is: printable, and enough to see what is still free."""

    program: str
    profile: str
    rows: tuple[PlacedLayer, ...]
    processors: tuple[int, ...]
    """The processor of each layer."""
    span: range = range(0)
    """NPs it takes; empty where they are not counted."""

    def __str__(self) -> str:
        """Return the rows as a table."""
        lines = aligned([PlacedLayer._fields, *(tuple(map(str, row)) for row in self.rows)])
        return "\n".join([f"{self.program} on {self.profile}", *lines])


def layer_bytes(inputs: int, units: int) -> int:
    """Return the bytes a layer is taken to need, by our conservative rule."""
    return units * (GRANULE * -(-inputs // GRANULE) + GRANULE)


def units_on_chip(inputs: int, limit: int) -> int:
    """Return how many units of so many inputs fit in `limit` bytes."""
    return limit // layer_bytes(inputs, 1)


def plan(
    program: Program,
    profile: DeviceProfile | str = "akd1000-published",
    *,
    beside: Collection[Placement] = (),
) -> Placement:
    """Return where a program goes `beside` others; raises `ResourceError` that says what is too much and what helps."""
    chip = find_profile(profile)
    if isinstance(chip.mesh, NeuronMesh):
        return _by_neurons(program, chip.name, chip.mesh, beside)
    return _by_processors(program, chip.name, chip.mesh, beside)


def side_by_side(
    programs: Iterable[Program], profile: DeviceProfile, beside: Collection[Placement] = ()
) -> list[Placement]:
    """Return where programs go next to each other and `beside` others; raises `ResourceError` where they do not fit."""
    placed: list[Placement] = []
    for program in programs:
        placed.append(plan(program, profile, beside=[*beside, *placed]))
    return placed


# One layer, one processor.


def _by_processors(program: Program, chip: str, mesh: ProcessorMesh, beside: Collection[Placement]) -> Placement:
    n_onchip, n_external, limit = (
        count.value for count in (mesh.onchip_processors, mesh.external_processors, mesh.onchip_bytes)
    )
    taken = {p for other in beside for p in other.processors}
    onchip = [p for p in range(n_onchip) if p not in taken]
    external = [p for p in range(n_onchip, n_onchip + n_external) if p not in taken]
    wide = [layer for layer in program.layers if layer_bytes(layer.inputs, layer.units) > limit]
    if len(program.layers) > len(onchip) + len(external) or len(wide) > len(external):
        raise ResourceError(_too_much(program, chip, limit, wide, len(onchip), len(external), beside))

    # Wide layers choose first: they can only go to external memory, narrow ones can go to both.
    chosen = {layer.name: external.pop(0) for layer in wide}
    rows: list[PlacedLayer] = []
    for layer in program.layers:
        need = layer_bytes(layer.inputs, layer.units)
        if layer.name in chosen:
            why = f"{need - limit} bytes above the {limit} of an on-chip processor"
        elif onchip:
            chosen[layer.name] = onchip.pop(0)
            why = f"within the {limit} bytes of an on-chip processor"
        else:
            chosen[layer.name] = external.pop(0)
            why = "would fit on chip, but those processors are all taken"
        where = chosen[layer.name]
        name = f"on-chip {where}" if where < n_onchip else f"external {where - n_onchip}"
        rows.append(PlacedLayer(layer.name, name, need, why))
    processors = tuple(chosen[layer.name] for layer in program.layers)
    return Placement(program=program.name, profile=chip, rows=tuple(rows), processors=processors)


def _too_much(
    program: Program,
    chip: str,
    limit: int,
    wide: Sequence[FullyConnected],
    onchip: int,
    external: int,
    beside: Collection[Placement],
) -> str:
    """Return what does not fit, by how much, and what would make it fit."""
    free = f"{onchip} on-chip and {external} external-memory processors are free"
    lines = []
    if len(wide) > external:
        lines.append(
            f"`{program.name}` does not fit {chip}: {len(wide)} layers need external memory, "
            f"{len(wide) - external} more than there are processors for it ({free})"
        )
        for layer in wide:
            need, most = layer_bytes(layer.inputs, layer.units), units_on_chip(layer.inputs, limit)
            room = f"at {layer.inputs} inputs {most} units fit on chip" if most else "not even one unit fits on chip"
            lines.append(f"  layer `{layer.name}`: {need} bytes, {need - limit} above the {limit} on chip; {room}")
        hint = "use fewer units or fewer digits (k digits are k times the units), or split the layer's units or inputs"
    else:
        over = len(program.layers) - onchip - external
        lines.append(
            f"`{program.name}` does not fit {chip}: it has {len(program.layers)} layers, {over} more than there "
            f"are processors for, one each ({free})"
        )
        hint = "split the chain into several programs and carry the activations through the host"
    if beside:
        hint = f"unload {_names(beside)}, or {hint}"
    return "\n".join([*lines, f"hint: {hint}"])


# NPs, as the design documents count them.


def _by_neurons(program: Program, chip: str, mesh: NeuronMesh, beside: Collection[Placement]) -> Placement:
    base, each, total = mesh.program_nps.value, mesh.head_nps.value, mesh.neural_processors.value
    need = base + each * len(program.heads)
    if len(program.layers) > base:
        raise ResourceError(f"`{program.name}` has {len(program.layers)} layers, more than the {base} NPs of a program")
    first = _first_gap(program, need, total, chip, beside)
    span = range(first, first + need)
    rows = [
        PlacedLayer(
            " + ".join(layer.name for layer in program.layers),
            f"NP {span.start} .. {span.start + base - 1}",
            image_bytes(program),
            f"{base} for the program, whatever its size",
        )
    ]
    for i, head in enumerate(program.heads):
        start = span.start + base + i * each
        rows.append(PlacedLayer(f"head {head.name}", f"NP {start} .. {start + each - 1}", 0, f"{each} per head"))
    processors = tuple(span[: len(program.layers)])
    return Placement(program=program.name, profile=chip, rows=tuple(rows), processors=processors, span=span)


def _first_gap(program: Program, need: int, total: int, chip: str, beside: Collection[Placement]) -> int:
    """Return the first NP with `need` free ones from it on."""
    spans = sorted((other.span for other in beside), key=lambda span: span.start)
    gaps, start = [], 0
    for span in [*spans, range(total, total)]:
        if span.start - start >= need:
            return start
        gaps.append(span.start - start)
        start = max(start, span.stop)
    free = sum(gaps)
    hint = f"unload {_names(beside)}, or use fewer heads" if beside else "use fewer heads, or split them over programs"
    raise ResourceError(
        f"`{program.name}` does not fit {chip}: it takes {need} NPs in one piece, {need - max(gaps)} more than "
        f"the largest gap; {free} of {total} are free\nhint: {hint}"
    )


def _names(placements: Collection[Placement]) -> str:
    return " or ".join(f"`{p.program}`" for p in placements)
