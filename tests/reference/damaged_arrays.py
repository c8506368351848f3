"""Arguments that no kernel may take: what the tests of bindings throw at them."""

import math

import numpy as np
from hypothesis import strategies as st

from metalforge import native

levels = st.sampled_from(native.available_levels())
precisions = st.sampled_from(["f64", "f32"])
REAL = {"f64": np.float64, "f32": np.float32}


def unaligned(array):
    """The same shape and type, one byte off."""
    raw = np.zeros(array.nbytes + 1, np.uint8)
    return raw[1:].view(array.dtype).reshape(array.shape)


def read_only(array):
    """A copy that nobody may write to."""
    array = array.copy()
    array.flags.writeable = False
    return array


def bigger(array, axis):
    """Zeros of the same shape with one more along an axis."""
    shape = list(array.shape)
    shape[axis % len(shape)] += 1
    return np.zeros(shape, array.dtype)


DAMAGE = {
    "other real": lambda a: a.astype(np.float32 if a.dtype == np.float64 else np.float64),
    "integers": lambda a: a.astype(np.int64),
    "complex": lambda a: a.astype(np.complex128),
    "half": lambda a: a.astype(np.float16),
    "extended": lambda a: a.astype(np.longdouble),
    "swapped bytes": lambda a: a.astype(a.dtype.newbyteorder()),
    "bytes": lambda a: a.view(np.uint8),
    "objects": lambda a: a.astype(object),
    "text": lambda a: a.astype("U4"),
    "one more dimension": lambda a: a[None].copy(),
    "scalar": lambda a: a.dtype.type(1),
    "no dimension": lambda a: np.zeros((), a.dtype),
    "too few": lambda a: a[:0].copy(),
    "one more at the end": lambda a: bigger(a, -1),
    "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
    "unaligned": unaligned,
    "number": lambda a: 1.0,
    "string": lambda a: "links",
    "raw bytes": lambda a: a.tobytes(),
    "memory": lambda a: memoryview(a.tobytes()),
    "lists": lambda a: a[:1].tolist(),
    "dictionary": lambda a: {},
}
"""Ways to spoil any C-contiguous array of reals."""

no_integers = st.one_of(
    st.integers(min_value=-(2**70), max_value=-1),
    st.integers(min_value=2**64, max_value=2**70),
    st.sampled_from([1.0, "1", None, True, math.nan, np.float64(3), np.array([1, 2]), 1j, b"1", [], object()]),
)
"""What stands for no unsigned 64-bit integer."""
