"""Echo state networks: whatever reaches the bindings, the right numbers or a Python exception come back."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_array

from metalforge import native
from metalforge.reservoir.activations import ACTIVATIONS
from reference import esn
from reference.damaged_arrays import unaligned

UNITS, INPUTS, BLOCKS, STORED = 18, 6, 2, 4
DTYPES = [np.float64, np.float32, np.int32, np.int64, np.complex128, np.bool_, ">f8", "U3", object, np.float16]
KINDS = ("dense", "csr", "blocks")


def good_arrays(real=np.float64):
    rng = np.random.default_rng(0)
    return {
        "w_in": rng.normal(size=(UNITS, INPUTS)).astype(real),
        "bias": rng.normal(size=UNITS).astype(real),
        "w_res": rng.normal(size=(UNITS, UNITS)).astype(real),
        "indptr": np.arange(UNITS + 1, dtype=np.int32) * 2,
        "indices": rng.integers(0, UNITS, 2 * UNITS).astype(np.int32),
        "data": rng.normal(size=2 * UNITS).astype(real),
        "columns": rng.integers(0, UNITS, (BLOCKS, STORED)).astype(np.int32),
        "values": rng.normal(size=(BLOCKS, STORED, 16)).astype(real),
    }


NAMES = {"dense": ("w_res",), "csr": ("indptr", "indices", "data"), "blocks": ("columns", "values")}


def make(kind, arrays, level=None, real=np.float64, leak=0.5, activation="tanh", threads=1):
    native_class = getattr(native.kernels(level), "Esn_f64" if real == np.float64 else "Esn_f32")
    chosen = {name: arrays[name] for name in ("w_in", "bias", *NAMES[kind])}
    return getattr(native_class, kind)(**chosen, leak=leak, activation=activation, threads=threads)


def wrong(array):
    """Things that are not a C-contiguous array of this array's type and shape."""

    doubled = np.repeat(array, 2, axis=-1)
    plain = st.builds(
        lambda dtype, shape: np.zeros(shape, dtype),
        st.sampled_from(DTYPES),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    )
    odd = [
        doubled[..., ::2],
        doubled,
        array[..., :-1],
        array[None],
        unaligned(array),
        array.astype(array.dtype.newbyteorder()),
    ]
    others = [None, 1, "text", b"bytes", {}, object(), array.tolist()]
    return st.one_of(plain, st.sampled_from(odd), st.sampled_from(others))


@settings(max_examples=250)
@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_weights_are_checked(data, kind):
    arrays = good_arrays()
    name = data.draw(st.sampled_from(("w_in", "bias", *NAMES[kind])))
    bad = data.draw(wrong(arrays[name]))
    assume(not (name == "w_in" and np.shape(bad) == (UNITS, 2 * INPUTS)))  # a network of more inputs
    # A longer list of indices or of columns may still be one; then another argument does not fit it.
    with pytest.raises((TypeError, ValueError), match=r"`(w_in|bias|w_res|indptr|indices|data|columns|values)`"):
        make(kind, arrays | {name: bad})


@settings(max_examples=200)
@given(kind=st.sampled_from(KINDS), where=st.integers(0, 10**6), bad=st.sampled_from([np.nan, np.inf, -np.inf]))
def test_weights_are_finite(kind, where, bad):
    for name in ("w_in", "bias", {"dense": "w_res", "csr": "data", "blocks": "values"}[kind]):
        arrays = good_arrays()
        arrays[name].flat[where % arrays[name].size] = bad
        with pytest.raises(ValueError, match=f"`{name}`.*finite"):
            make(kind, arrays)


@settings(max_examples=300)
@given(data=st.data())
def test_forged_patterns_are_refused_or_harmless(data):
    integers = st.one_of(st.integers(-3, 2 * UNITS + 3), st.integers(-(2**31), 2**31 - 1))
    arrays = good_arrays()
    name = data.draw(st.sampled_from(["indptr", "indices", "columns"]))
    target = arrays[name].reshape(-1)
    for _ in range(data.draw(st.integers(1, 3))):
        target[data.draw(st.integers(0, target.size - 1))] = data.draw(integers)
    if name == "indptr":
        valid = target[0] == 0 and target[-1] == 2 * UNITS and np.all(np.diff(target.astype(np.int64)) >= 0)
    else:
        valid = target.min() >= 0 and target.max() < UNITS
    kind = "blocks" if name == "columns" else "csr"
    for level in native.available_levels():
        if not valid:
            with pytest.raises(ValueError, match=f"`{name}`"):
                make(kind, arrays, level)
            continue
        out = make(kind, arrays, level).step(np.full(UNITS, 0.5), np.ones(INPUTS))
        assert np.all(np.abs(out) <= 1)


@given(leak=st.one_of(st.floats(max_value=0), st.floats(min_value=1, exclude_min=True), st.just(float("nan"))))
def test_leaks_are_checked(leak):
    with pytest.raises(ValueError, match=r"`leak`.*above 0.*at most 1"):
        make("dense", good_arrays(), leak=leak)


@given(name=st.text(max_size=12))
def test_activations_are_checked(name):
    assume(name not in ACTIVATIONS)
    with pytest.raises(ValueError, match="`activation` must be"):
        make("dense", good_arrays(), activation=name)


@given(threads=st.sampled_from([0, -1, 1025, 2**40, 1.0, None, "2", True]))
def test_threads_are_checked(threads):
    with pytest.raises((TypeError, ValueError), match="`threads`"):
        make("dense", good_arrays(), threads=threads)


@settings(max_examples=250)
@given(data=st.data(), kind=st.sampled_from(KINDS), batch=st.booleans(), sequence=st.booleans())
def test_calls_are_checked(data, kind, batch, sequence):
    network = make(kind, good_arrays())
    samples, steps = (2,) * batch, (4,) * sequence
    arrays = {
        "u": np.zeros((*samples, *steps, INPUTS)),
        "state": np.zeros((*samples, UNITS)),
        "out": np.zeros((*samples, *steps, UNITS)),
    }
    call = network.run if sequence else network.step
    call(**arrays)
    name = data.draw(st.sampled_from(["u", "state", "out"]))
    bad = data.draw(wrong(arrays[name]))
    # `step` makes its own output when there is none; inputs of another length or without samples may still be inputs,
    # and then the other arguments do not fit them.
    assume(not (name == "out" and bad is None and not sequence))
    with pytest.raises((TypeError, ValueError), match=r"`(u|state|out)`"):
        call(**(arrays | {name: bad}))


@settings(max_examples=80)
@given(
    units=st.integers(1, 70),
    inputs=st.integers(1, 9),
    samples=st.integers(1, 40),
    steps=st.integers(1, 30),
    density=st.floats(0, 1),
    leak=st.floats(0.01, 1),
    real=st.sampled_from([np.float32, np.float64]),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    seed=st.integers(0, 2**32 - 1),
)
def test_random_networks_follow_the_twin(units, inputs, samples, steps, density, leak, real, activation, seed):
    rng = np.random.default_rng(seed)
    w_res = rng.normal(size=(units, units)) * (rng.random((units, units)) < density)
    w_res = (0.5 * w_res / max(1, np.linalg.norm(w_res, 2))).astype(real)
    w_res.flat[rng.integers(w_res.size)] = 0.25  # never without a weight: bindings refuse empty arrays
    rows = csr_array(w_res)
    u = rng.normal(size=(samples, steps, inputs)).astype(real)
    state = rng.uniform(-1, 1, (samples, units)).astype(real)
    arrays = {
        "w_in": rng.normal(size=(units, inputs)).astype(real),
        "bias": rng.normal(size=units).astype(real),
        "w_res": w_res,
        "indptr": rows.indptr.astype(np.int32),
        "indices": rows.indices.astype(np.int32),
        "data": rows.data,
    }
    wanted = esn.states(arrays["w_in"], w_res, arrays["bias"], float(real(leak)), activation, u, state)
    tolerance = 1e-4 if real == np.float32 else 1e-12  # relu and identity reach states of some ten
    for level in native.available_levels():
        found = []
        for kind in ("dense", "csr"):
            network = make(kind, arrays, level, real, leak, activation)
            out = np.empty((samples, steps, units), real)
            network.run(u, state, out)
            found.append(out)
            one = np.empty((steps, units), real)
            network.run(u[-1], state[-1], one)
            assert np.array_equal(one, out[-1])
        assert np.array_equal(*found)
        assert np.allclose(found[0], wanted, rtol=tolerance, atol=tolerance)


@settings(max_examples=100)
@given(data=st.data())
def test_the_reading_ceiling_checks_its_source(data):
    read = native.kernels().read
    numbers = np.ones(4096)
    assert read(numbers, 3) == 3 * numbers.nbytes
    assert read(numbers, 0) == 0
    bad = data.draw(wrong(numbers))
    assume(not (isinstance(bad, np.ndarray) and bad.dtype == np.float64 and bad.ndim == 1 and bad.size))
    with pytest.raises((TypeError, ValueError), match="`source`"):
        read(bad, 1)
    with pytest.raises((TypeError, ValueError), match="`rounds`"):
        read(numbers, data.draw(st.sampled_from([-1, 1.0, None, True, 2**41])))
