import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import mpmath
import numpy as np
import pytest
from scipy.sparse import csr_array

from metalforge.core.errors import SpecError
from metalforge.native import kernels
from metalforge.reservoir.activations import ACTIVATIONS, ActivationName
from metalforge.reservoir.engine import EsnEngine, init
from metalforge.reservoir.sparse import BLOCK, BlockSparse
from metalforge.reservoir.weights import EsnWeights
from reference import esn

SIZES = [(1, 1), (7, 1), (16, 3), (17, 1), (50, 7), (129, 50)]
DTYPES = [np.float64, np.float32]
ROUNDING = {np.float64: 1e-13, np.float32: 1e-5}
"""Against doubles: some ten steps of up to 179 terms and states up to some ten, which relu and identity reach."""


def block_sparse(rng, units, dtype, density=0.3):
    blocks, per_block = -(-units // BLOCK), max(1, round(density * units))
    columns = np.stack([np.sort(rng.choice(units, per_block, replace=False)) for _ in range(blocks)])
    values = rng.normal(size=(blocks, per_block, BLOCK)) * 0.7 / math.sqrt(per_block)
    values[-1, :, units - BLOCK * (blocks - 1) :] = 0
    return BlockSparse(units, units, columns.astype(np.int32), values.astype(dtype))


def networks(units, inputs, dtype, activation="tanh", leak=0.3, seed=1, **options):
    """The same network three times: dense, CSR and block-sparse."""
    rng = np.random.default_rng([seed, units, inputs])
    blocks = block_sparse(rng, units, dtype)
    w_in = rng.normal(size=(units, inputs)).astype(dtype)
    bias = rng.normal(size=units).astype(dtype)
    full = blocks.to_dense()
    return [
        EsnWeights(w_in=w_in, w_res=w_res, bias=bias, leak=leak, activation=activation, **options)
        for w_res in (full, csr_array(full), blocks)
    ]


def signals(units, inputs, dtype, samples=11, steps=9, seed=2):
    rng = np.random.default_rng([seed, units, inputs])
    u = rng.normal(size=(samples, steps, inputs)).astype(dtype)
    return u, rng.uniform(-1, 1, (samples, units)).astype(dtype)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_every_matrix_and_form_is_the_definition(monkeypatch, level, size, dtype, activation):
    monkeypatch.setenv("METALFORGE_ISA", level)
    u, start = signals(*size, dtype)
    dense, *sparse = networks(*size, dtype, activation)
    engine = EsnEngine(dense, threads=1)
    whole = engine.run(u, start)
    assert whole.dtype == dtype
    twin = esn.states(dense.w_in, dense.w_res, dense.bias, dense.leak, activation, u, start)
    assert np.allclose(whole, twin, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])
    for weights in (dense, *sparse):  # one order of sums: from here on, the same bits
        engine = EsnEngine(weights, threads=1)
        assert np.array_equal(engine.run(u, start), whole)
        assert np.array_equal(engine.run(u[3], start[3]), whole[3])
        batch, single = start, start[3]
        for t in range(u.shape[1]):
            batch, single = engine.step(batch, np.ascontiguousarray(u[:, t])), engine.step(single, u[3, t])
            assert np.array_equal(batch, whole[:, t])
            assert np.array_equal(single, whole[3, t])


@pytest.mark.parametrize("samples", [1, 2, 3, 5, 6, 7, 8, 9, 15, 16, 17, 33, 64, 65, 100, 193])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sample_does_not_see_its_batch(level, monkeypatch, dtype, samples):
    monkeypatch.setenv("METALFORGE_ISA", level)
    u, start = signals(20, 3, dtype, samples=samples, steps=3)
    for weights in networks(20, 3, dtype):
        engine = EsnEngine(weights, threads=1)
        together = engine.run(u, start)
        assert np.array_equal(together, [engine.run(v, s) for v, s in zip(u, start, strict=True)])
        assert np.array_equal(engine.step(start, np.ascontiguousarray(u[:, 0])), together[:, 0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_have_one_order_in_the_type_of_the_weights(level, monkeypatch, dtype):
    # Sums in double precision, or in another order, would differ from these in many bits.
    monkeypatch.setenv("METALFORGE_ISA", level)
    fused = kernels(level).has_fma
    forms = networks(17, 5, dtype, "identity", leak=1.0)
    u, start = signals(17, 5, dtype, samples=2)
    for v, s in zip(u[:, 0], start, strict=True):
        exact = esn.ordered_sums(forms[0].w_in, forms[0].w_res, forms[0].bias, v, s, fused=fused)
        for weights in forms:
            assert np.array_equal(EsnEngine(weights).step(s, v), exact)


def test_sums_of_the_twin_depend_on_rounding_and_order():
    weights = networks(17, 5, np.float32)[0]
    u, start = signals(17, 5, np.float32, samples=1)
    arguments = (weights.w_in, weights.w_res, weights.bias, u[0, 0], start[0])
    fused, plain = (esn.ordered_sums(*arguments, fused=f) for f in (True, False))
    doubles = (weights.w_in.astype(float) @ u[0, 0] + weights.w_res.astype(float) @ start[0] + weights.bias).astype(
        "f4"
    )
    assert not np.array_equal(fused, plain)
    assert not np.array_equal(fused, doubles)


def test_every_name_of_an_activation_is_in_the_table():
    assert set(ACTIVATIONS) == set(get_args(ActivationName))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_those_of_the_table(level, monkeypatch, name, dtype):
    monkeypatch.setenv("METALFORGE_ISA", level)
    one = np.ones((1, 1), dtype)
    engine = EsnEngine(EsnWeights(w_in=one, w_res=0 * one, leak=1.0, activation=name))
    grid = np.concatenate([np.linspace(-12, 12, 4001), np.geomspace(1e-30, 1e30, 121), -np.geomspace(1e-30, 1e30, 121)])
    x = np.concatenate([grid, [0.5, 1, 1.5, 2, 3, -3, 79.9, 80.1, -90, 2 * math.sqrt(2)]]).astype(dtype)
    found = engine.step(np.zeros((len(x), 1), dtype), x[:, None])[:, 0]
    epsilon, wanted = np.finfo(dtype).eps, ACTIVATIONS[name].value(x)
    # The bracket of gelu, 1 + erf, loses its digits below 0; the sigmoid stays at 2e-35 below -80.
    lost = np.where(x < 0, -x, 0) if name == "gelu" else 0
    assert np.all(np.abs(found - wanted) <= epsilon * (8 * np.abs(wanted) + 2 * lost) + 2e-35)


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("sigmoid", lambda x: 1 / (1 + mpmath.exp(-x))),
        ("gelu", lambda x: x / 2 * (1 + mpmath.erf(x / mpmath.sqrt(2)))),
        ("tanh", mpmath.tanh),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_activations_are_exact_to_rounding(level, monkeypatch, name, exact, dtype):
    monkeypatch.setenv("METALFORGE_ISA", level)
    one = np.ones((1, 1), dtype)
    engine = EsnEngine(EsnWeights(w_in=one, w_res=0 * one, leak=1.0, activation=name))
    x = np.linspace(-9, 9, 613).astype(dtype)
    found = engine.step(np.zeros((len(x), 1), dtype), x[:, None])[:, 0]
    with mpmath.workdps(30):
        true = np.array([float(exact(mpmath.mpf(float(v)))) for v in x])
    size = np.maximum(np.abs(x), 1) if name == "gelu" else 1  # x/2 (1 + erf): the bracket is exact to its last bit only
    assert np.all(np.abs(found - true) <= 4 * np.finfo(dtype).eps * size)


def test_reservoirpy_gives_the_same_states():
    from reservoirpy.nodes import Reservoir

    weights = networks(60, 4, np.float64)[0]
    u = signals(60, 4, np.float64, samples=1, steps=200)[0][0]
    peer = Reservoir(units=60, lr=weights.leak, W=weights.w_res, Win=weights.w_in, bias=weights.bias)
    assert np.allclose(EsnEngine(weights).run(u), peer.run(u), rtol=0, atol=1e-12)


def test_feedback_is_more_inputs():
    rng = np.random.default_rng(4)
    plain = networks(20, 3, np.float64)[0]
    w_fb = rng.normal(size=(20, 2))
    weights = EsnWeights(w_in=plain.w_in, w_res=plain.w_res, bias=plain.bias, leak=0.3, w_fb=w_fb)
    engine = EsnEngine(weights)
    assert (engine.inputs, engine.units, engine.dtype) == (5, 20, np.float64)
    u, y = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))
    both = np.concatenate([u, y], axis=1)
    true = esn.states(
        np.concatenate([plain.w_in, w_fb], axis=1), plain.w_res, plain.bias, 0.3, "tanh", both, np.zeros(20)
    )
    assert np.allclose(engine.run(both), true, rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match="`u`"):
        engine.run(u)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_threads_change_nothing(level, monkeypatch, kind):
    monkeypatch.setenv("METALFORGE_ISA", level)
    weights = networks(60, 5, np.float32)[kind]
    u, start = signals(60, 5, np.float32, samples=41, steps=30)
    alone = EsnEngine(weights, threads=1).run(u, start)
    for threads in (2, 3, 7):
        assert np.array_equal(EsnEngine(weights, threads=threads).run(u, start), alone)


def test_one_engine_serves_many_python_threads():
    weights = networks(129, 5, np.float64)
    engines = [EsnEngine(w, threads=1) for w in weights]
    u, start = signals(129, 5, np.float64, samples=8, steps=40)
    wanted = engines[0].run(u, start)

    def work(i):
        engine, s = engines[i % 3], start[i % 8]
        if i % 2:
            return np.array_equal(engine.run(u[i % 8], s), wanted[i % 8])
        for v, w in zip(u[i % 8], wanted[i % 8], strict=True):
            s = engine.step(s, v)
            if not np.array_equal(s, w):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(48)))


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_sequences_can_be_cut_anywhere(kind):
    weights = networks(50, 3, np.float32)[kind]
    engine = EsnEngine(weights)
    u = signals(50, 3, np.float32, samples=1, steps=70)[0][0]
    whole = engine.run(u)
    assert np.array_equal(whole, engine.run(u, init(weights)))
    for cut in (1, 23, 24, 25, 69):
        assert np.array_equal(engine.run(u[cut:], whole[cut - 1]), whole[cut:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_arguments_stay_as_they_are_unless_they_are_the_output(kind, dtype):
    engine = EsnEngine(networks(129, 5, dtype)[kind], threads=1)
    u, start = signals(129, 5, dtype, samples=8)
    u_before, start_before = u.copy(), start.copy()
    first, second = engine.step(start, np.ascontiguousarray(u[:, 0])), engine.run(u, start)
    assert np.array_equal(u, u_before)
    assert np.array_equal(start, start_before)
    assert np.array_equal(first, second[:, 0])
    out = np.empty_like(second)
    assert engine.run(u, start, out) is out
    assert np.array_equal(out, second)
    state = start.copy()
    assert engine.step(state, np.ascontiguousarray(u[:, 0]), out=state) is state
    assert np.array_equal(state, second[:, 0])
    state = start[2].copy()
    for t in range(u.shape[1]):
        assert engine.step(state, u[2, t], state) is state
    assert np.array_equal(state, second[2, -1])


def test_other_types_and_orders_are_converted():
    weights = networks(17, 3, np.float32)[0]
    engine = EsnEngine(weights)
    rng = np.random.default_rng(0)
    u, state = np.round(rng.normal(size=(6, 3)) * 8) / 8, np.round(rng.uniform(-1, 1, 17) * 8) / 8
    wanted = engine.run(u.astype(np.float32), state.astype(np.float32))
    for other in (u, u.tolist(), np.asfortranarray(u), np.repeat(u, 2, axis=0)[::2], u.astype(">f8"), u.astype("f2")):
        assert np.array_equal(engine.run(other, state), wanted)
    for other in (u[0], u[0].tolist(), np.repeat(u[0], 2)[::2], u[0].astype(">f4")):
        assert np.array_equal(engine.step(state, other), wanted[0])
        assert np.array_equal(engine.step(state.tolist(), other), wanted[0])
    ones = engine.step(init(weights), np.ones(3, np.float32))
    assert np.array_equal(engine.step(init(weights), np.ones(3, int)), ones)
    assert np.array_equal(engine.step(init(weights), np.ones(3, bool)), ones)
    assert np.array_equal(engine.step(init(weights, 4), np.ones((4, 3), int)), np.tile(ones, (4, 1)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
@pytest.mark.parametrize("name", ["u", "state"])
def test_numbers_that_are_not_finite_are_named(name, bad):
    engine = EsnEngine(networks(129, 5, np.float32)[0])
    for where in (0, 3, 4):
        arguments = {"u": np.zeros((2, 5)), "state": np.zeros(129)}
        arguments[name].flat[where] = bad
        with pytest.raises(ValueError, match=f"`{name}`.*finite"):
            engine.run(**arguments)
        with pytest.raises(ValueError, match=f"`{name}`.*finite"):
            engine.step(arguments["state"], arguments["u"][0])
    state = np.zeros(129, np.float32)
    state[128] = bad if bad != 1e39 else np.inf
    with pytest.raises(ValueError, match=r"`state`.*finite.*128"):
        engine.step(state, np.zeros(5, np.float32))


@pytest.mark.parametrize(
    ("state", "u", "message"),
    [
        (np.zeros(17), np.zeros(4), r"`u`.*\(3,\) or \(n, 3\).*\(4,\)"),
        (np.zeros(16), np.zeros(3), r"`state`.*\(17,\).*\(16,\)"),
        (np.zeros(17), np.zeros((2, 3)), r"`state`.*\(2, 17\).*\(17,\)"),
        (np.zeros((2, 17)), np.zeros(3), r"`state`.*\(17,\).*\(2, 17\)"),
        (np.zeros((2, 17)), np.zeros((3, 3)), r"`state`.*\(3, 17\).*\(2, 17\)"),
        (np.zeros((1, 2, 17)), np.zeros((1, 2, 3)), "`u`"),
        (np.zeros(17), 1.0, "`u`"),
        (np.zeros((0, 17)), np.zeros((0, 3)), "empty"),
    ],
)
def test_wrong_shapes_are_named(state, u, message):
    engine = EsnEngine(networks(17, 3, np.float64)[0])
    with pytest.raises(ValueError, match=message):
        engine.step(state, u)


@pytest.mark.parametrize("values", ["text", [1j, 0, 0], [None, 1, 2], np.zeros(3, "M8[s]")])
def test_what_is_no_number_is_refused(values):
    engine = EsnEngine(networks(17, 3, np.float64)[0])
    with pytest.raises(SpecError, match=r"`u`.*real"):
        engine.step(np.zeros(17), values)
    with pytest.raises(SpecError, match=r"`u`.*real"):
        engine.run(values)


def test_sequences_have_two_or_three_axes_and_a_step():
    engine = EsnEngine(networks(17, 3, np.float64)[0])
    for shape in ((3,), (1, 1, 1, 3), ()):
        with pytest.raises(SpecError, match=r"\(steps, 3\) or \(samples, steps, 3\)"):
            engine.run(np.zeros(shape))
    for shape in ((0, 3), (0, 4, 3), (2, 0, 3)):
        with pytest.raises(ValueError, match="empty"):
            engine.run(np.zeros(shape))
    with pytest.raises(ValueError, match=r"`state`.*\(2, 17\)"):
        engine.run(np.zeros((2, 4, 3)), np.zeros(17))


def test_outputs_are_checked():
    engine = EsnEngine(networks(17, 3, np.float64)[0])
    state, u = np.zeros(17), np.zeros(3)
    read_only = np.zeros(17)
    read_only.flags.writeable = False
    for out in (np.zeros(16), np.zeros((1, 17)), np.zeros(34)[::2], read_only):
        with pytest.raises(ValueError, match="`out`"):
            engine.step(state, u, out)
    with pytest.raises(TypeError, match=r"`out`.*float64"):
        engine.step(state, u, np.zeros(17, np.float32))
    with pytest.raises(ValueError, match="`out`"):
        engine.run(np.zeros((4, 3)), out=np.zeros((3, 17)))
    shared = np.zeros(40)
    with pytest.raises(ValueError, match=r"`out`.*memory.*`state`"):
        engine.step(shared[:17], u, shared[5:22])
    with pytest.raises(ValueError, match=r"`out`.*memory.*`u`"):
        engine.step(state, shared[:3], shared[:17])


@pytest.mark.parametrize("activation", ["identity", "relu", "gelu"])
def test_a_state_that_grows_without_bound_is_an_error(activation):
    w_res = 4 * np.eye(3)
    engine = EsnEngine(EsnWeights(w_in=np.ones((3, 1)), w_res=w_res, activation=activation))
    assert np.all(np.isfinite(engine.run(np.ones((400, 1)))))
    with pytest.raises(OverflowError, match=r"diverges\nhint.*`w_res`"):
        engine.run(np.ones((700, 1)))
    with pytest.raises(OverflowError, match="diverges"):
        engine.step(np.full(3, 1e308), np.ones(1))
    assert np.all(np.isfinite(EsnEngine(EsnWeights(w_in=np.ones((3, 1)), w_res=w_res)).run(np.ones((700, 1)))))


def test_csr_in_any_order_is_the_same_matrix():
    dense = networks(17, 3, np.float64)[0]
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(dense.w_res)
    shuffled = rng.permutation(len(rows))
    data = dense.w_res[rows, columns][shuffled]
    order = np.argsort(rows[shuffled], kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=17))])
    twice = csr_array(
        (np.repeat(data[order] / 2, 2), np.repeat(columns[shuffled][order], 2), 2 * indptr), shape=(17, 17)
    )
    assert not twice.has_canonical_format
    u = signals(17, 3, np.float64)[0]
    before = twice.indices.copy()
    found = EsnEngine(EsnWeights(w_in=dense.w_in, w_res=twice, bias=dense.bias, leak=0.3)).run(u)
    assert np.array_equal(found, EsnEngine(dense).run(u))
    assert np.array_equal(twice.indices, before)
    wide = csr_array(dense.w_res)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert np.array_equal(EsnEngine(EsnWeights(w_in=dense.w_in, w_res=wide, bias=dense.bias, leak=0.3)).run(u), found)


def test_a_matrix_that_stores_nothing_is_zero():
    w_in = np.ones((20, 2))
    u = signals(20, 2, np.float64)[0]
    empty = BlockSparse(20, 20, np.zeros((2, 0), np.int32), np.zeros((2, 0, BLOCK)))
    wanted = EsnEngine(EsnWeights(w_in=w_in, w_res=np.zeros((20, 20)))).run(u)
    for w_res in (csr_array((20, 20)), empty):
        assert np.array_equal(EsnEngine(EsnWeights(w_in=w_in, w_res=w_res)).run(u), wanted)


def test_a_forged_csr_matrix_is_refused():
    good = networks(17, 3, np.float64)[1]
    for name, values in (("indices", [17]), ("indices", [-1]), ("indptr", [1]), ("indptr", [0, 2**31 - 1])):
        forged = good.w_res.copy()
        getattr(forged, name)[: len(values)] = values
        with pytest.raises(SpecError, match=r"`w_res`.*CSR matrix"):
            EsnEngine(EsnWeights(w_in=good.w_in, w_res=forged))


def test_engines_can_be_copied():
    weights = networks(17, 3, np.float32)[2]
    engine = EsnEngine(weights, threads=2)
    u = signals(17, 3, np.float32)[0]
    for other in (copy.deepcopy(engine), pickle.loads(pickle.dumps(engine))):
        assert other.threads == 2
        assert np.array_equal(other.run(u), engine.run(u))


def test_threads_must_be_a_number():
    with pytest.raises(ValueError, match="`threads`"):
        EsnEngine(networks(7, 1, np.float64)[0], threads=0)
    assert EsnEngine(networks(7, 1, np.float64)[0], threads=3).threads == 3
