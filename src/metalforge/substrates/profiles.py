"""Device profiles of NPUs: where modelled costs and limits come from, as TOML files with a source for every number.

Nothing here was measured by this project, and no physical AKD1000 was at hand. `akd1000-published` holds third-party
measurements; `akd1000-claimed` holds the figures of the seed documents, which rest on timing an empty device
(54 us is a write and a read with no model loaded) and on vendor power. Reports name the profile they used, and
claims are reproduced under `akd1000-claimed` only. A chip of your own is a file of the same shape: `load_profile`.
"""

from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Generic, Literal, TypeAlias, TypeVar

import msgspec

from metalforge.core import SpecError, find, opened

FOLDER = Path(__file__).parent / "npu" / "profiles"


Number = TypeVar("Number", int, float)
LEAST, MOST = 1e-15, 1e15
"""Bounds of every number of a profile: sums and products of a few of them stay finite."""
MOST_PROCESSORS = 1 << 16
"""Processors of a mesh: 800 times those of an AKD1000. Placement lists them."""


class ProfileFigure(msgspec.Struct, Generic[Number], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One number and the sentence that says where it was found."""

    value: Number
    source: str

    def __post_init__(self) -> None:
        if not LEAST <= self.value <= MOST:
            raise ValueError(f"`value` must be a number of {LEAST:g} to {MOST:g}. Got {str(self.value)[:32]}")
        if not self.source.strip():
            raise ValueError("`source` must say where the number was found. Got nothing")


Count: TypeAlias = ProfileFigure[int]
Amount: TypeAlias = ProfileFigure[float]


class TimeTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds by a whole number (a width, a batch size), in rising order, with one source."""

    rows: tuple[tuple[int, float], ...]
    source: str
    network: tuple[int, ...] = ()
    """Lines of the chain that was timed, inputs first; empty where the table itself varies them."""

    def __post_init__(self) -> None:
        keys = [key for key, _ in self.rows]
        if len(self.rows) < 2 or any(a >= b for a, b in pairwise(keys)) or keys[0] < 1:
            raise ValueError(f"`rows` must be two or more with rising whole numbers from 1 on. Got {str(keys)[:80]}")
        for number in (*keys, *(seconds for _, seconds in self.rows), *self.network):
            Amount(value=number, source=self.source)


class Mode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One clock mode: what a call takes and draws in it; for information, costs are those of `call`."""

    name: Literal["Performance", "Economy", "LowPower"]
    call_s: float
    power_w: float
    source: str

    def __post_init__(self) -> None:
        for value in (self.call_s, self.power_w):
            Amount(value=value, source=self.source)


class Arithmetic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The constants of the chip's integers."""

    accumulator_bits: Count
    """Width of the signed potential; it saturates."""
    steps_per_unit: Count
    """Activation steps are whole multiples of 1 / this."""

    def __post_init__(self) -> None:
        if not 8 <= self.accumulator_bits.value <= 31:
            raise ValueError(f"`accumulator_bits` must be 8 .. 31. Got {self.accumulator_bits.value}")
        if self.steps_per_unit.value not in (1, 2, 4, 8, 16):
            raise ValueError(f"`steps_per_unit` must be 1, 2, 4, 8 or 16. Got {self.steps_per_unit.value}")


class _Mesh(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="accounting"):
    """What a program takes of the chip; the key `accounting` of a profile says how that is counted."""

    neural_processors: Count
    sram_bytes: Count

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            count = getattr(self, field.name).value
            if not field.name.endswith("_bytes") and count > MOST_PROCESSORS:
                raise ValueError(f"`{field.name}` must be at most {MOST_PROCESSORS}. Got {count}")


class ProcessorMesh(_Mesh, frozen=True, kw_only=True, tag="processors"):
    """A layer takes one processor that can hold it."""

    onchip_processors: Count
    external_processors: Count
    onchip_bytes: Count
    """What one on-chip processor may hold."""

    @property
    def layer_processors(self) -> int:
        """Those that can hold a fully connected layer."""
        return self.onchip_processors.value + self.external_processors.value


class NeuronMesh(_Mesh, frozen=True, kw_only=True, tag="neurons"):
    """A program takes NPs, as the design counts."""

    onchip_bytes: ClassVar[None] = None
    program_nps: Count
    head_nps: Count

    @property
    def layer_processors(self) -> int:
        """Any can hold a part of a layer."""
        return self.neural_processors.value


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What calls, updates and transfers take."""

    call_s: Amount
    """One inference call, single input, small program."""
    weight_update_s: Amount
    """Replacing a variable of a loaded program."""
    power_w: Amount
    """What the call's energy is charged at."""
    max_batch: Count
    layer_s: Amount | None = None
    """Each layer after the first."""
    idle_power_w: Amount | None = None
    """What the board draws without any call: charged for the time it is held (`costs.board_energy`)."""
    link_bytes_per_s: Amount | None = None
    """Host to device; None: no figure, and loading is not charged."""


class DeviceProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Costs and limits of an NPU, each with the sentence that says where it was found."""

    name: str
    chip: str
    source: str
    """The profile in a sentence."""
    arithmetic: Arithmetic
    mesh: ProcessorMesh | NeuronMesh
    call: Call
    modes: tuple[Mode, ...]
    """Clock modes; the first is the one that `call` was measured in."""
    widths: TimeTable | None = None
    """Seconds of one call by the width of a square layer."""
    batches: TimeTable | None = None
    """Seconds an input by the inputs of a call."""

    def __post_init__(self) -> None:
        names = [mode.name for mode in self.modes]
        if not names or names[0] != "Performance" or len(set(names)) != len(names):
            raise ValueError(f"`modes` must be different and begin with Performance. Got {', '.join(names) or 'none'}")
        if self.batches and (len(self.batches.network) < 2 or self.batches.rows[0][0] != 1):
            raise ValueError("`batches` must name the `network` that was timed and begin with a batch of 1")

    def figures(self) -> tuple[tuple[str, str, str], ...]:
        """Return every number as (name, value, source), in the order of the file: what a table of the profile shows."""
        found: list[tuple[str, str, str]] = []
        for section in ("arithmetic", "mesh", "call"):
            for field in msgspec.structs.fields(getattr(self, section)):
                entry = getattr(getattr(self, section), field.name)
                if isinstance(entry, ProfileFigure):
                    text = str(entry.value) if isinstance(entry.value, int) else f"{entry.value:g}"
                    found.append((f"{section}.{field.name}", text, entry.source))
        found += [(f"modes.{m.name}", f"{m.call_s:g} s, {m.power_w:g} W", m.source) for m in self.modes]
        for name, table in (("widths", self.widths), ("batches", self.batches)):
            if table:
                rows = ", ".join(f"{key}: {seconds:g} s" for key, seconds in table.rows)
                found.append((name, rows, table.source))
        return tuple(found)


def load_profile(path: Path | str) -> DeviceProfile:
    """Return the profile in a TOML file; raises `SpecError` that names the key which is unknown, missing or wrong."""
    hint = f"hint: start from a copy of {FOLDER.name}/akd1000-published.toml in metalforge"
    with opened(path) as (stream, _):
        data = stream.read()
        try:
            return msgspec.toml.decode(data, type=DeviceProfile)
        except (ValueError, RecursionError) as error:
            raise SpecError(f"{error}\n{hint}") from error


PROFILES = {p.name: p for p in map(load_profile, sorted(FOLDER.glob("*.toml"), reverse=True))}


def profile(name: DeviceProfile | str) -> DeviceProfile:
    """Return a device profile: one that ships, by name, or your own, by the path of its `.toml` file or as it is."""
    if isinstance(name, DeviceProfile):
        return name
    return load_profile(name) if name.endswith(".toml") else find("device profile", name, PROFILES)
