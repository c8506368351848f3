"""Heads from readout outputs: offset + scale * activation(output), all heads of one activation in one operation."""

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from metalforge.core.schema import HeadActivation, HeadLayout

__all__ = ["Decoder", "HeadValues", "decoder_of"]

HeadValues: TypeAlias = dict[str, NDArray[np.float64]]
"""A value or several a head, by name; (width,) for one input, (batch, width) for a batch."""


class Decoder:
    """Decodes the outputs of one layout.

    Heads are a few numbers each: what costs time is the number of operations, not their length. So outputs are
    permuted once, heads of one activation side by side, and each activation is one call on its block.
    """

    def __init__(self, layout: HeadLayout) -> None:
        spans = {head.name: range(layout.width)[layout.span(head.name)] for head in layout.heads}
        order = sorted(layout.heads, key=lambda head: (head.activation, head.width))
        columns = [column for head in order for column in spans[head.name]]
        self._order = None if columns == list(range(layout.width)) else np.array(columns)
        self._blocks: list[tuple[HeadActivation, slice, int]] = []
        places: dict[str, slice] = {}
        start = 0
        for head in order:
            stop = start + head.width
            places[head.name] = slice(start, stop)
            same = self._blocks and self._blocks[-1][0] == head.activation
            if same and (head.activation != "softmax" or self._blocks[-1][2] == head.width):
                self._blocks[-1] = (head.activation, slice(self._blocks[-1][1].start, stop), head.width)
            else:
                self._blocks.append((head.activation, slice(start, stop), head.width))
            start = stop
        self._places = tuple((name, places[name]) for name in layout.names)
        scale = np.concatenate([np.full(head.width, head.scale, np.float64) for head in order])
        offset = np.concatenate([np.full(head.width, head.offset, np.float64) for head in order])
        self._scale = scale if np.any(scale != 1) else None
        self._offset = offset if offset.any() else None

    def __call__(self, outputs: NDArray[Any]) -> HeadValues:
        """Return each head's value from outputs (..., width of the layout), as views of one new array."""
        given = outputs if self._order is None else outputs.take(self._order, axis=-1)
        values = given.astype(np.float64)
        for activation, block, width in self._blocks:
            part = values[..., block]
            if activation == "sigmoid":
                expit(part, out=part)
            elif activation == "relu":
                np.maximum(part, 0, out=part)
            elif activation == "tanh":
                np.tanh(part, out=part)
            elif activation == "softmax" and width == 2:
                # exp(a) / (exp(a) + exp(b)) is a sigmoid of the difference: two operations in place of five.
                classes = part.reshape(*part.shape[:-1], -1, 2)
                expit(classes - classes[..., ::-1], out=classes)
            elif activation == "softmax":
                classes = part.reshape(*part.shape[:-1], -1, width)  # splitting the last axis gives a view
                classes -= classes.max(axis=-1, keepdims=True)
                np.exp(classes, out=classes)
                classes /= classes.sum(axis=-1, keepdims=True)
        if self._scale is not None:
            values *= self._scale
        if self._offset is not None:
            values += self._offset
        if values.ndim == 1:  # a plain slice is made in half the time of one with an ellipsis
            return {name: values[place] for name, place in self._places}
        return {name: values[..., place] for name, place in self._places}


@lru_cache(maxsize=64)
def decoder_of(layout: HeadLayout) -> Decoder:
    """Return the decoder of a layout; made once, since that takes longer than decoding."""
    return Decoder(layout)
