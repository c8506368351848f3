"""Outputs of a readout as the heads that they are: offset + scale * activation(output) + base(inputs), by name."""

import atexit
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import get_args

import msgspec
import numpy as np

from metalforge.core import Doubles, FeatureSchema, HeadActivation, HeadLayout, Reals, require_known
from metalforge.native import kernels


class HeadValues(Mapping[str, Doubles]):
    """A value or several a head, by name; (width,) for one input, (batch, width) for a batch.

    All are views of `vector`, which has them in the layout's order; a head is looked up when it is asked for.
    """

    __slots__ = ("_places", "vector")

    def __init__(self, vector: Doubles, places: Mapping[str, slice]) -> None:
        self.vector, self._places = vector, places

    def __getitem__(self, name: str) -> Doubles:
        return np.asarray(self.vector[..., self._places[name]])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def at(self, index: int) -> "HeadValues":
        """Return one sample of a batch."""
        return HeadValues(self.vector[index], self._places)

    def __repr__(self) -> str:
        """Return the heads as a dictionary would be shown."""
        return repr(dict(self))


class Decoder:
    """Decodes the outputs of one layout, all heads in one native call."""

    def __init__(self, layout: HeadLayout) -> None:
        spans = [(head, layout.span(head.name)) for head in layout.heads]
        of = [(head, span) for head, span in spans for _ in range(head.width)]
        self.width = layout.width
        self.places = {head.name: span for head, span in spans}
        kinds = [get_args(HeadActivation).index(head.activation) for head, _ in of]
        self._scales = np.array([head.scale for head, _ in of], np.float64)
        self._offsets = np.array([head.offset for head, _ in of], np.float64)
        self.native = kernels().HeadDecoder(
            np.array(kinds, np.int32),
            np.array([span.start for _, span in of], np.int32),
            np.array([head.width for head, _ in of], np.int32),
            self._scales,
            self._offsets,
        )

    def values(self, outputs: Reals) -> Doubles:
        """Return the values of outputs (..., width of the layout), of the same shape."""
        given = np.ascontiguousarray(outputs, np.float32 if outputs.dtype == np.float32 else np.float64)
        found = np.empty(given.shape)
        if given.size:
            decode = self.native.decode_f32 if given.dtype == np.float32 else self.native.decode_f64
            decode(given.reshape(-1, self.width), found.reshape(-1, self.width))
        return found

    def scaled(self, activated: Reals) -> Doubles:
        """Return the values of outputs whose activations have been applied elsewhere."""
        return np.asarray(activated * self._scales + self._offsets)

    def __call__(self, outputs: Reals) -> HeadValues:
        """Return each head's value from outputs (..., width of the layout), as views of one new array."""
        return HeadValues(self.values(outputs), self.places)


class BaseCurves:
    """What the heads of a layout are counted from, as a function of the network's inputs."""

    def __init__(self, layout: HeadLayout, features: FeatureSchema | None) -> None:
        names = [] if features is None else [feature.name for feature in features.features]
        self._curves = []
        for head in layout.heads:
            if (base := head.base) is msgspec.UNSET:
                continue
            require_known(f"feature of the base of head `{head.name}`", base.feature, names)
            assert features is not None
            feature = features.features[names.index(base.feature)]
            at, values = np.array(base.knots, np.float64).T
            # The knots as the network sees the feature: nothing has to be scaled back.
            self._curves.append(
                (layout.span(head.name), names.index(base.feature), (at - feature.offset) / feature.scale, values)
            )

    def add(self, values: Doubles, inputs: Reals) -> None:
        """Add the curves to decoded values (..., width of the layout), given inputs (..., features)."""
        for span, feature, at, curve in self._curves:
            order = slice(None) if at[0] <= at[-1] else slice(None, None, -1)
            values[..., span] += np.interp(inputs[..., feature], at[order], curve[order])[..., None]


@lru_cache(maxsize=64)
def decoder_of(layout: HeadLayout) -> Decoder:
    """Return the decoder of a layout; made once, since that takes longer than decoding."""
    return Decoder(layout)


def head_values(
    layout: HeadLayout, features: FeatureSchema | None, outputs: Reals, inputs: Reals, *, activated: bool = False
) -> Doubles:
    """Return readout outputs (..., width of the layout) as the values of their heads, base curves included.

    `inputs` (..., features) are those that led to the outputs, scaled as the network sees them. `activated` outputs
    have had their activations applied already.
    """
    decoder = decoder_of(layout)
    values = decoder.scaled(outputs) if activated else decoder.values(outputs)
    BaseCurves(layout, features).add(values, np.reshape(inputs, (*values.shape[:-1], -1)))
    return values


# Where threads or frames keep this module to the end, nobody else lets go of what is native in it.
atexit.register(decoder_of.cache_clear)
