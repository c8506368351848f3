"""Random networks: as many connections as asked for, an exact spectral radius, integers that quantise exactly."""

from dataclasses import fields

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.schema import Feature, FeatureSchema
from metalforge.reservoir.generate import int4_grid, make_esn
from metalforge.reservoir.matrices import random_matrix, to_kind, with_spectral_radius
from metalforge.reservoir.sparse import BLOCK, BlockSparse, kind_of, to_dense
from metalforge.reservoir.weights import UnstableReservoirWarning
from metalforge.substrates.npu.quantize import quantize_to

KINDS = ["dense", "csr", "block16"]
DISTRIBUTIONS = ["normal", "uniform", "ternary"]
INT4 = (-7, 7)


def rng(seed=1):
    return np.random.default_rng(seed)


def radius(matrix):
    """The reference: all eigenvalues, by LAPACK."""
    return np.abs(np.linalg.eigvals(to_dense(matrix).astype(np.float64))).max()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("connectivity", "expected"), [(1.0, 40), (0.1, 4), (0.26, 10), (0.001, 1)])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_every_row_has_the_same_number_of_connections(kind, connectivity, expected, distribution):
    m = random_matrix(rng(), 37, 40, distribution=distribution, connectivity=connectivity, kind=kind)
    assert kind_of(m) == kind
    assert m.shape == (37, 40)
    assert set(np.count_nonzero(to_dense(m), axis=1)) == {expected}


def test_dense_and_csr_are_the_same_matrix_and_other_seeds_give_others():
    dense = random_matrix(rng(3), 30, 20, connectivity=0.3)
    csr = random_matrix(rng(3), 30, 20, connectivity=0.3, kind="csr")
    assert isinstance(csr, csr_array)
    assert np.array_equal(dense, csr.toarray())
    assert not np.array_equal(dense, random_matrix(rng(4), 30, 20, connectivity=0.3))


def test_sixteen_rows_of_a_block_share_their_columns_and_blocks_differ():
    full = to_dense(random_matrix(rng(), 40, 100, connectivity=0.1, kind="block16"))
    patterns = [np.flatnonzero(row) for row in full]
    for row, pattern in enumerate(patterns):
        assert np.array_equal(pattern, patterns[row - row % BLOCK])
    assert not np.array_equal(patterns[0], patterns[BLOCK])


def test_connections_follow_their_distribution_and_columns_are_drawn_alike():
    def values(d):
        full = random_matrix(rng(), 200, 100, distribution=d, connectivity=0.5)
        return full[full != 0], full

    normal, full = values("normal")
    assert stats.kstest(normal, "norm").pvalue > 0.01
    assert stats.kstest(values("uniform")[0], "uniform", args=(-1, 2)).pvalue > 0.01
    ternary = values("ternary")[0]
    assert set(ternary) == {-1, 1}
    assert abs(ternary.mean()) < 4 / np.sqrt(ternary.size)
    assert stats.chisquare(np.count_nonzero(full, axis=0)).pvalue > 0.01


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("units", [1, 2, 100, 650])
def test_the_spectral_radius_is_exact_for_every_kind_and_size(kind, units):
    m = random_matrix(rng(), units, units, connectivity=min(1, 20 / units), kind=kind)
    scaled = with_spectral_radius(m, 0.9)
    assert kind_of(scaled) == kind
    assert radius(scaled) == pytest.approx(0.9, rel=1e-11)


def test_a_float32_matrix_stays_float32():
    for kind in KINDS:
        m = random_matrix(rng(), 50, 50, kind=kind).astype(np.float32)
        scaled = with_spectral_radius(m, 0.5)
        assert scaled.dtype == np.float32
        assert radius(scaled) == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        (np.zeros((3, 3)), "no unit of this matrix reaches itself"),
        (np.triu(np.ones((50, 50)), 1)[rng().permutation(50)[:, None], rng().permutation(50)], "reaches itself"),
        (csr_array(np.diag(np.ones(700), -1)), "no unit of this matrix reaches itself"),
        (np.array([[1.0, 1.0], [-1.0, -1.0]]), "cancel"),
        (np.ones((2, 3)), "square"),
    ],
)
def test_matrices_without_a_radius_are_refused(matrix, says):
    with pytest.raises(SpecError, match=says):
        with_spectral_radius(matrix, 0.9)


@pytest.mark.parametrize("wanted", [0.0, -1.0, np.nan, np.inf])
def test_a_radius_must_be_positive(wanted):
    with pytest.raises(SpecError, match="above 0 and finite"):
        with_spectral_radius(np.eye(3), wanted)
    with pytest.raises(SpecError, match="above 0 and finite"):
        with_spectral_radius(int4_grid(np.eye(3)), wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("connectivity", [0.1, 1.0])
def test_quantisation_finds_the_integers_of_the_grid_again_without_error(kind, distribution, connectivity):
    drawn = random_matrix(rng(), 100, 100, distribution=distribution, connectivity=connectivity, kind=kind)
    grid = int4_grid(drawn)
    integers = to_dense(grid)
    assert np.array_equal(integers, np.rint(integers))
    assert np.all(np.abs(integers).max(axis=1) == 7)
    scaled = with_spectral_radius(grid, 0.9)
    for dtype, rounding in ((np.float64, 1e-15), (np.float32, 1e-7)):
        real = to_dense(scaled.astype(dtype))
        assert real.dtype == dtype
        for per in ("row", "tensor"):
            found = quantize_to(real, INT4, per=per)
            assert np.array_equal(found.values, integers)
            assert np.abs(found.error).max() <= rounding
            assert found.scales == pytest.approx(np.abs(to_dense(scaled)).max() / 7, rel=10 * rounding)


def test_the_grid_keeps_pattern_shape_and_kind():
    block = random_matrix(rng(), 100, 100, connectivity=0.1, kind="block16")
    grid, drawn = int4_grid(block), to_dense(block)
    assert isinstance(grid, BlockSparse)
    assert grid.columns.shape == (7, 10)
    integers = to_dense(grid)
    assert np.array_equal(integers != 0, drawn != 0)
    assert np.array_equal(np.sign(integers), np.sign(drawn))
    rows = np.abs(drawn).max(axis=1, keepdims=True)
    assert np.all(np.abs(np.abs(integers) - 7 * np.abs(drawn) / rows) < 1)
    assert radius(with_spectral_radius(grid, 0.8)) == pytest.approx(0.8, rel=1e-12)


def test_input_weights_on_the_grid_end_at_the_input_scaling():
    w = make_esn(20, 5, seed=1, grid="int4", input_scaling=0.3)
    assert np.allclose(np.abs(w.w_in).max(axis=1), 0.3, rtol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_are_the_same_matrix(kind):
    full = random_matrix(rng(), 35, 35, connectivity=0.2)
    full[16:32] = 0  # a block without any connection
    kept = to_kind(full, kind)
    assert kind_of(kept) == kind
    assert np.array_equal(to_dense(kept), full)


@pytest.mark.parametrize("grid", [None, "int4"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_network_has_what_was_asked_for(grid, kind, dtype):
    features = FeatureSchema(name="two", features=(Feature(name="a"), Feature(name="b")))
    w = make_esn(
        100, 2, seed=5, spectral_radius=0.7, leak=0.3, input_scaling=0.5, bias_scaling=0.1, connectivity=0.2,
        kind=kind, grid=grid, feedback=3, dtype=dtype, features=features, activation="sigmoid",
    )  # fmt: skip
    assert (w.units, w.inputs, w.feedback, w.leak, w.activation) == (100, 2, 3, 0.3, "sigmoid")
    assert w.dtype == dtype
    assert w.features is features
    assert kind_of(w.w_res) == kind
    assert radius(w.w_res) == pytest.approx(0.7, rel=1e-12 if dtype == np.float64 else 1e-5)
    assert set(np.count_nonzero(to_dense(w.w_res), axis=1)) == {20}
    assert 0.3 < np.abs(w.w_in).max() <= np.float32(0.5)
    assert 0.05 < np.abs(w.bias).max() <= 0.1
    if grid == "int4":
        for matrix in (to_dense(w.w_res), w.w_in, w.w_fb):
            assert np.abs(quantize_to(matrix, INT4).error).max() < 1e-7 * np.abs(matrix).max()
    else:
        assert np.abs(quantize_to(to_dense(w.w_res), INT4).error).max() > 0.001


def test_the_same_seed_gives_the_same_network_and_each_matrix_its_own_stream():
    def same(a, b, names):
        return all(np.array_equal(to_dense(getattr(a, n)), to_dense(getattr(b, n))) for n in names)

    options = {"bias_scaling": 0.1, "feedback": 2}
    one = make_esn(60, 3, seed=8, **options)
    names = [f.name for f in fields(one) if isinstance(getattr(one, f.name), np.ndarray)]
    assert set(names) == {"w_in", "w_res", "bias", "w_fb"}
    assert same(one, make_esn(60, 3, seed=8, **options), names)
    other = make_esn(60, 3, seed=9, **options)
    assert not any(same(one, other, [n]) for n in names)
    sparser = make_esn(60, 3, seed=8, connectivity=0.5, **options)
    assert same(one, sparser, ["w_in", "bias", "w_fb"])
    assert not same(one, sparser, ["w_res"])
    assert same(one, make_esn(60, 5, seed=8, **options), ["w_res", "bias", "w_fb"])


def test_a_radius_above_one_warns_and_names_it():
    with pytest.warns(UnstableReservoirWarning, match=r"1\.25"):
        w = make_esn(20, 1, seed=1, spectral_radius=1.25)
    assert radius(w.w_res) == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"seed": True}, "seed"),
        ({"grid": "int8"}, "grid"),
        ({"connectivity": 0.0}, "connectivity"),
        ({"connectivity": 1.1}, "connectivity"),
        ({"input_connectivity": float("nan")}, "connectivity"),
        ({"input_scaling": 0.0}, "input_scaling"),
        ({"feedback_scaling": -1.0}, "feedback_scaling"),
        ({"bias_scaling": -0.1}, "bias_scaling"),
        ({"feedback": -1}, "feedback"),
        ({"spectral_radius": 0.0}, "radius"),
        ({"spectral_radius": float("nan")}, "radius"),
        ({"leak": 0.0}, "leak"),
        ({"dtype": np.float16}, "float32 or float64"),
        ({"features": FeatureSchema(name="one", features=(Feature(name="a"),))}, "names 1 inputs"),
    ],
)
def test_bad_arguments_are_named(options, says):
    with pytest.raises(SpecError, match=says):
        make_esn(**{"units": 10, "inputs": 2, "seed": 1, **options})


@pytest.mark.parametrize(("units", "inputs"), [(0, 1), (3, 0), (-1, 2)])
def test_empty_networks_are_refused(units, inputs):
    with pytest.raises(SpecError, match="one column"):
        make_esn(units, inputs, seed=1)


def test_unknown_names_are_listed():
    with pytest.raises(UnknownNameError, match="known: normal, ternary, uniform"):
        random_matrix(rng(), 2, 2, distribution="gaussian")
    with pytest.raises(UnknownNameError, match="did you mean `csr`"):
        random_matrix(rng(), 2, 2, kind="cs")
    with pytest.raises(UnknownNameError, match="kind of matrix"):
        to_kind(np.eye(2), "coo")


@pytest.mark.parametrize(("units", "connectivity"), [(300, 0.1), (301, 0.1), (420, 1.0)])
def test_the_spectral_radius_is_that_of_all_eigenvalues_however_it_is_found(units, connectivity):
    weights = make_esn(units, 1, seed=3, connectivity=connectivity, spectral_radius=0.8)
    found = np.abs(np.linalg.eigvals(weights.w_res)).max()
    assert found == pytest.approx(0.8, rel=1e-12)
    assert np.array_equal(
        make_esn(units, 1, seed=3, connectivity=connectivity, spectral_radius=0.8).w_res, weights.w_res
    )
