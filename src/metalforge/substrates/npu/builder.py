"""Programs step by step: `ProgramBuilder("name").fully_connected(...).activation(...)...build()`.

Every step gives back a new builder and leaves the old one as it was, so programs can share their first layers. A step
that cannot lead to a program raises at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core.arrays import Array, Doubles
from metalforge.core.errors import require_known

from .program import Activation, Encoding, FullyConnected, Head, Program, ProgramError


@dataclass(frozen=True, slots=True, eq=False)
class ProgramBuilder:
    """A program in the making; only the name is given here, the rest by the methods."""

    name: str
    _layers: tuple[FullyConnected, ...] = field(default=(), kw_only=True)
    _activated: bool = field(default=True, kw_only=True)  # no layer waits for an activation
    _encoding: Encoding = field(default=Encoding(), kw_only=True)
    _heads: tuple[Head, ...] = field(default=(), kw_only=True)
    _scales: Doubles = field(default_factory=lambda: np.ones(()), kw_only=True)
    _schema: str = field(default="", kw_only=True)
    _provenance: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)

    def fully_connected(
        self, name: str, weights: ArrayLike, *, weight_bits: int = 4, input_bits: int | None = None
    ) -> "ProgramBuilder":
        """Add a layer with integer weights of shape (inputs, units), linear until `activation` says otherwise.

        `input_bits` are what the layer before gives; 4 for the first.
        """
        if input_bits is None:
            input_bits = self._layers[-1].activation_bits if self._layers else 4
        array = _numbers(weights, np.int8, f"layer `{name}`: `weights`")
        layer = FullyConnected(name=name, weights=array, weight_bits=weight_bits, input_bits=input_bits)
        layers = (*self._layers, layer)
        Program(name=self.name, layers=layers)  # layers that do not chain are told here, where they were added
        return replace(self, _layers=layers, _activated=False)

    def activation(
        self, kind: str, *, bits: int = 4, threshold: ArrayLike | None = None, step: ArrayLike | None = None
    ) -> "ProgramBuilder":
        """Say what the last layer does with its potentials: "linear" or "bounded_relu".

        `threshold` (integers, 0) and `step` (1) are one number for all units or one per unit.
        """
        require_known("activation", kind, list(Activation))
        if self._activated:
            why = f"layer `{self._layers[-1].name}` has one" if self._layers else "there is no layer yet"
            raise ProgramError(f"an activation belongs to the layer before it, and {why}; call `fully_connected` first")
        *before, layer = self._layers
        where = f"layer `{layer.name}`"
        changes: dict[str, Any] = {"activation": Activation(kind), "activation_bits": bits}
        if threshold is not None:
            values = _numbers(threshold, np.int32, f"{where}: `threshold`")
            changes["threshold"] = _spread(values, layer.units, f"{where}: `threshold`")
        if step is not None:
            steps = _numbers(step, np.float32, f"{where}: `step`")
            changes["act_step"] = _spread(steps, layer.units, f"{where}: `step`")
        return replace(self, _layers=(*before, replace(layer, **changes)), _activated=True)

    def encoding(self, *, activation_bits: int = 4, digits: int = 1, signed: str = "unsigned") -> "ProgramBuilder":
        """Say how the host makes inputs and reads outputs; see `Encoding`."""
        return replace(self, _encoding=Encoding(activation_bits=activation_bits, digits=digits, signed=signed))

    def heads(self, heads: Mapping[str, int | tuple[int, int]]) -> "ProgramBuilder":
        """Name ranges of outputs: a width, which starts where the head before ends, or (start, width)."""
        made: list[Head] = []
        for name, place in heads.items():
            end = made[-1].start + made[-1].width if made else 0
            try:
                start, width = map(index, place if isinstance(place, tuple) else (end, place))
            except (TypeError, ValueError) as error:
                raise ProgramError(f"head `{name}` must be a width or (start, width). Got {place!r}") from error
            made.append(Head(name=name, start=start, width=width))
        return replace(self, _heads=tuple(made))

    def scales(self, scales: ArrayLike) -> "ProgramBuilder":
        """Say what one unit of an output is worth: one number for all outputs or one per output."""
        return replace(self, _scales=_numbers(scales, np.float64, "`scales`"))

    def schema(self, schema: str) -> "ProgramBuilder":
        """Name the schema of features and heads."""
        return replace(self, _schema=schema)

    def provenance(self, **entries: str | int | float) -> "ProgramBuilder":
        """Add where the program comes from, as text by key; a key given again replaces its text."""
        merged = dict(self._provenance) | {key: str(value) for key, value in entries.items()}
        return replace(self, _provenance=tuple(merged.items()))

    def build(self) -> Program:
        """Return the program; raises when it has no layers, or scales or heads that do not fit the last one."""
        outputs = self._layers[-1].units // self._encoding.digits if self._layers else 0
        return Program(
            name=self.name,
            layers=self._layers,
            encoding=self._encoding,
            heads=self._heads,
            scales=np.full(outputs, self._scales) if self._scales.ndim == 0 else self._scales,
            schema=self._schema,
            provenance=self._provenance,
        )


def _numbers(values: ArrayLike, dtype: type[np.number[Any]], where: str) -> Array:
    """Return a copy in the chip's type; floats are no integers, since rounding is the quantiser's business."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise ProgramError(f"{where} must be one array: {error}") from error
    kinds, wanted, limits = "iuf", "real numbers", (-np.inf, np.inf)
    if issubclass(dtype, np.integer):
        kinds, wanted, limits = "iub", "integers: quantise them first", (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if array.dtype.kind not in kinds:
        raise ProgramError(f"{where} must be {wanted}. Got {array.dtype}")
    if array.size and (array.min() < limits[0] or array.max() > limits[1]):
        raise ProgramError(f"{where} must lie in {limits[0]} .. {limits[1]}. Got {array.min()} .. {array.max()}")
    with np.errstate(over="ignore"):  # becomes infinite, which the layer refuses
        return array.astype(dtype)


def _spread(values: Array, units: int, where: str) -> Array:
    """Return one entry per unit."""
    if values.shape not in ((), (units,)):
        raise ProgramError(f"{where} must be one number or {units}, one per unit. Got shape {values.shape}")
    return np.broadcast_to(values, (units,)).copy()
