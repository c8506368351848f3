"""Whatever is thrown at an entry point, a Python exception comes back: never a crash, never silent nonsense."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from metalforge import native
from reference.damaged_arrays import read_only, unaligned

DTYPES = [np.float64, np.float32, np.uint32, np.int64, np.complex128, np.bool_, ">f8", "U3", object, np.float16]


def _bad_arrays():
    """Arrays that are wrong for a (n, 2m) float64 output: by dtype, rank, order, size, stride, alignment or flags."""
    shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
    plain = st.builds(lambda dtype, shape: np.zeros(shape, dtype), st.sampled_from(DTYPES), shapes)

    good = np.zeros((6, 4))
    return st.one_of(
        plain,
        st.just(np.asfortranarray(good)),
        st.just(good[::2]),
        st.just(good[:, ::-1]),
        st.just(read_only(good)),
        st.just(unaligned(good)),
        st.just(good[:, :3]),
        st.sampled_from([None, 1, "text", [[1.0, 2.0]], b"bytes", {}, object(), good.T, good.tolist()]),
    )


bad_integers = st.one_of(
    st.integers(min_value=-(2**70), max_value=-1),
    st.integers(min_value=2**64, max_value=2**70),
    st.sampled_from([1.0, "1", None, True, float("nan"), np.float64(3), np.array([1, 2]), 1j]),
)


def accepts(array):
    return (
        isinstance(array, np.ndarray)
        and array.dtype == np.float64
        and array.dtype.isnative
        and array.ndim == 2
        and array.size > 0
        and array.shape[1] % 2 == 0
        and array.flags.c_contiguous
        and array.flags.aligned
        and array.flags.writeable
    )


@settings(max_examples=300)
@given(array=_bad_arrays(), kind=st.sampled_from(["uniform", "normal"]))
def test_outputs_are_checked(array, kind):
    for level in native.available_levels():
        call = getattr(native.kernels(level), kind)
        if accepts(array):
            call(array, 1, 0, 0, 0, 0, 1)
            assert np.all(np.isfinite(array))
        else:
            with pytest.raises((TypeError, ValueError), match="out"):
                call(array, 1, 0, 0, 0, 0, 1)


@settings(max_examples=200)
@given(value=bad_integers, position=st.sampled_from(["seed", "stream", "step", "first_site", "first_draw", "threads"]))
def test_integers_are_checked(value, position):
    arguments = {"seed": 1, "stream": 0, "step": 0, "first_site": 0, "first_draw": 0, "threads": 1} | {position: value}
    with pytest.raises((TypeError, ValueError), match=position):
        native.kernels().uniform(np.zeros((2, 2)), **arguments)


@settings(max_examples=300)
@given(array=_bad_arrays())
def test_inputs_are_checked(array):
    kernels = native.kernels()
    good = np.zeros(4)
    pair = np.ones((2, 4), np.float32)
    is_vector = (
        isinstance(array, np.ndarray)
        and array.ndim == 1
        and array.dtype == np.float64
        and array.dtype.isnative
        and array.size > 0
    )
    if not is_vector:
        with pytest.raises((TypeError, ValueError), match="`x`"):
            kernels.sum_f64(array, 1)
        with pytest.raises((TypeError, ValueError), match="`x`"):
            kernels.elementary("log", array, good)
    with pytest.raises((TypeError, ValueError), match=r"`[xy]`|`out`"):
        kernels.dot_f64(array, np.zeros(9), 1)
    with pytest.raises((TypeError, ValueError), match="`b`"):
        kernels.df64("add", pair, array, pair, pair, 1)
    with pytest.raises((TypeError, ValueError), match="`key`"):
        kernels.philox_blocks(np.zeros((7, 4), np.uint32), array, np.zeros((7, 4), np.uint32))
    with pytest.raises((TypeError, ValueError), match=r"`source`|`target`"):
        kernels.copy(array, np.zeros(9), 1)


@given(bad=st.sampled_from([np.nan, np.inf, -np.inf]), where=st.integers(0, 7), which=st.sampled_from("abc"))
def test_df64_refuses_numbers_that_are_not_finite(bad, where, which):
    operands = {name: np.ones((2, 4), np.float32) for name in "abc"}
    operands[which].flat[where] = bad
    with pytest.raises(ValueError, match=f"`{which}`.*finite"):
        native.kernels().df64("add", **operands, out=np.zeros((2, 4), np.float32), threads=1)


@pytest.mark.parametrize("call", ["df64", "simd_probe_f64", "elementary"])
def test_unknown_operations_are_named(call):
    pair, x = np.ones((2, 4), np.float32), np.ones(4)
    arguments = {"df64": (pair, pair, pair, pair, 1), "simd_probe_f64": (x, x, x), "elementary": (x, x)}[call]
    with pytest.raises(ValueError, match="cosh"):
        getattr(native.kernels(), call)("cosh", *arguments)


def test_missing_and_extra_arguments_are_type_errors():
    with pytest.raises(TypeError):
        native.kernels().uniform(np.zeros((2, 2)))
    with pytest.raises(TypeError):
        native.kernels().uniform(np.zeros((2, 2)), 1, 0, 0, 0, 0, 1, 2)
