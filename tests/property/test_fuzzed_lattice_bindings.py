"""Whatever is thrown at the lattice kernels, an exception that names the argument comes back: never a crash."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metalforge import native
from metalforge.core import MetalforgeError, PlacementError, SpecError
from metalforge.lattice import ChainSpec, GaugeField, HmcSpec
from metalforge.lattice.field import Momenta
from reference import damaged_arrays
from reference.damaged_arrays import REAL, bigger, levels, no_integers, precisions, read_only

DIMS = (4, 4, 4, 4)

# Every entry point with its arguments in order.
CALLS = {
    "pack": ("host_links", "links", "threads"),
    "unpack": ("links", "host_links", "threads"),
    "plaquette_sums": ("links", "threads"),
    "polyakov": ("links", "threads"),
    "clover_sums": ("links", "threads"),
    "kinetic": ("momenta", "threads"),
    "set_hot": ("links", "seed", "stream", "step", "threads"),
    "refresh_momenta": ("momenta", "seed", "stream", "step", "threads"),
    "evolve": ("links", "momenta", "beta", "stages", "threads"),
    "kick_momenta": ("links", "momenta", "keep", "coefficient", "threads"),
    "move_links": ("links", "momenta", "eps", "threads"),
    "reunitarise": ("links", "threads"),
    "heatbath": ("links", "beta", "seed", "stream", "step", "selection", "threads"),
    "overrelax": ("links", "selection", "threads"),
}
ARRAYS, REALS = {"host_links", "links", "momenta", "stages"}, {"beta", "keep", "coefficient", "eps"}
READS = {("pack", "host_links"), ("evolve", "stages"), ("kinetic", "momenta")} | {
    (name, "links") for name in ("unpack", "plaquette_sums", "polyakov", "clover_sums")
}
"""What is only read, and may thus be read-only."""


def arguments_of(*kinds):
    pairs = [(name, a) for name, arguments in CALLS.items() for a in arguments if a in set().union(*kinds)]
    return st.sampled_from(pairs)


def good(level, precision, dims=DIMS):
    """Valid arguments of every call."""
    layout = getattr(native.kernels(level), f"layout_{precision}")(dims)
    links = np.zeros((layout.vectors, 4, 18, layout.lanes), REAL[precision])
    links[:, :, [0, 8, 16]] = 1
    host = np.zeros((*dims[::-1], 4, 3, 3, 2))
    host[..., [0, 1, 2], [0, 1, 2], 0] = 1
    return {
        "layout": layout,
        "links": links,
        "momenta": np.zeros((layout.vectors, 4, 8, layout.lanes), REAL[precision]),
        "host_links": host,
        "stages": np.array([[1.0, 0.1], [0.0, 0.1]]),
        "beta": 5.7,
        "keep": 1.0,
        "coefficient": 0.1,
        "eps": 0.1,
        "seed": 1,
        "stream": 0,
        "step": 1,
        "selection": 255,
        "threads": 1,
    }


def call(level, precision, name, values):
    kernel = getattr(native.kernels(level), f"{name}_{precision}")
    return kernel(values["layout"], *[values[a] for a in CALLS[name]])


def spoiled(level, precision, place, value):
    """A call with one argument replaced."""
    name, argument = place
    call(level, precision, name, good(level, precision) | {argument: value})


DAMAGE = damaged_arrays.DAMAGE | {
    "one dimension": lambda a: a.ravel().copy(),
    "reversed": lambda a: a[::-1, ..., ::-1],
    "Fortran": np.asfortranarray,
    "transposed": lambda a: a.T,
    "None": lambda a: None,
}


@settings(max_examples=400)
@given(level=levels, precision=precisions, place=arguments_of(ARRAYS), how=st.sampled_from(sorted(DAMAGE)))
def test_arrays_are_checked(level, precision, place, how):
    value = DAMAGE[how](good(level, precision)[place[1]])
    with pytest.raises((TypeError, ValueError), match=f"`{place[1]}`"):
        spoiled(level, precision, place, value)


@settings(max_examples=100)
@given(level=levels, precision=precisions, place=arguments_of(ARRAYS - {"stages"}), axis=st.integers(0, 3))
def test_arrays_of_another_lattice_are_refused(level, precision, place, axis):
    """One site more in any direction, or the same number of sites cut differently."""
    array = good(level, precision)[place[1]]
    for value in (bigger(array, axis), array.reshape(array.shape[0] // 2, array.shape[1] * 2, *array.shape[2:])):
        with pytest.raises(ValueError, match=f"`{place[1]}`.*C-contiguous array"):
            spoiled(level, precision, place, value)


@pytest.mark.parametrize("precision", sorted(REAL))
def test_what_is_written_to_must_be_writable_and_what_is_read_need_not_be(level, precision):
    places = [(name, a) for name, arguments in CALLS.items() for a in arguments if a in ARRAYS]
    for name, argument in places:
        value = read_only(good(level, precision)[argument])
        if (name, argument) in READS:
            call(level, precision, name, good(level, precision) | {argument: value})
        else:
            with pytest.raises(ValueError, match=f"`{argument}`.*read-only"):
                call(level, precision, name, good(level, precision) | {argument: value})


@settings(max_examples=200)
@given(
    level=levels,
    precision=precisions,
    place=arguments_of({"seed", "stream", "step", "selection", "threads"}),
    value=no_integers,
)
def test_integers_are_checked(level, precision, place, value):
    with pytest.raises((TypeError, ValueError), match=f"`{place[1]}`.*integer"):
        spoiled(level, precision, place, value)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("stream", 2**32), ("step", 2**32), ("selection", 256), ("threads", 0), ("threads", 1025)],
)
def test_integers_have_their_ranges(level, argument, value):
    for name, arguments in CALLS.items():
        if argument in arguments:
            with pytest.raises(ValueError, match=f"`{argument}` must be"):
                call(level, "f64", name, good(level, "f64") | {argument: value})
    assert any(argument in arguments for arguments in CALLS.values())


@settings(max_examples=100)
@given(
    level=levels,
    precision=precisions,
    place=arguments_of(REALS),
    value=st.sampled_from([None, "5.7", 1j, [5.7], np.ones(2), object(), b"", {}]),
)
def test_reals_are_numbers(level, precision, place, value):
    with pytest.raises(TypeError, match=f"{place[1]}: float"):
        spoiled(level, precision, place, value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["evolve", "heatbath"])
def test_beta_is_finite(level, name, value):
    for precision in REAL:
        with pytest.raises(ValueError, match=r"`beta`.*finite"):
            spoiled(level, precision, (name, "beta"), value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "place", [("kick_momenta", "keep"), ("kick_momenta", "coefficient"), ("move_links", "eps")], ids=lambda p: p[1]
)
def test_coefficients_are_finite(place, value):
    with pytest.raises(ValueError, match=f"`{place[1]}`"):
        spoiled(native.level(), "f64", place, value)


@settings(max_examples=50)
@given(
    level=levels,
    precision=precisions,
    where=st.integers(0, 3),
    value=st.sampled_from([math.nan, math.inf, -math.inf]),
)
def test_stages_hold_finite_numbers(level, precision, where, value):
    stages = good(level, precision)["stages"]
    stages.flat[where] = value
    with pytest.raises(ValueError, match=f"`stages`.*finite.*index {where}"):
        call(level, precision, "evolve", good(level, precision) | {"stages": stages})


@pytest.mark.parametrize("kind", [0.5, 2.0, -1.0])
def test_stages_are_moves_or_kicks(kind):
    with pytest.raises(ValueError, match="`stages`"):
        spoiled(native.level(), "f64", ("evolve", "stages"), np.array([[kind, 0.1]]))


def test_a_heat_bath_below_zero_is_refused():
    with pytest.raises(ValueError, match="`beta`"):
        spoiled(native.level(), "f64", ("heatbath", "beta"), -1.0)


@settings(max_examples=50)
@given(
    level=levels,
    precision=precisions,
    where=st.integers(0, 256 * 72 - 1),
    value=st.sampled_from([math.nan, math.inf, -math.inf]),
)
def test_host_links_are_finite(level, precision, where, value):
    host = good(level, precision)["host_links"]
    host.flat[where] = value
    with pytest.raises(ValueError, match=f"`host_links`.*finite.*index {where}"):
        call(level, precision, "pack", good(level, precision) | {"host_links": host})


def test_a_layout_belongs_to_one_precision_and_one_level(level):
    others = [native.kernels(name).layout_f64(DIMS) for name in native.available_levels() if name != level]
    strangers = [*others, native.kernels(level).layout_f32(DIMS), None, DIMS, "layout", object()]
    for name in CALLS:
        for stranger in strangers:
            with pytest.raises(TypeError, match="layout"):
                call(level, "f64", name, good(level, "f64") | {"layout": stranger})


def test_a_layout_is_made_by_its_function_only(level):
    with pytest.raises(TypeError):
        native.kernels(level).Layout_f64()


bad_extents = st.one_of(
    st.integers(-(2**70), 1),
    st.integers(2**16 + 1, 2**70),
    st.integers(1, 2**15).map(lambda n: 2 * n + 1),
    st.sampled_from([4.0, "4", None, True, math.nan, math.inf, np.float64(4), 4j, b"4", [4], object()]),
)
bad_lengths = st.lists(st.just(4), max_size=8).filter(lambda d: len(d) != 4)
bad_dims = st.one_of(
    st.tuples(bad_extents, st.integers(0, 3)).map(lambda p: [4] * p[1] + [p[0]] + [4] * (3 - p[1])),
    bad_lengths,
    bad_lengths.map(tuple),
    st.sampled_from([None, 4, 4.0, "4444", "4", {}, object(), [2**16] * 4, np.full(4, 4.0), np.ones((4, 4))]),
)


@settings(max_examples=300)
@given(level=levels, precision=precisions, dims=bad_dims)
def test_dims_are_four_even_integers(level, precision, dims):
    with pytest.raises((TypeError, ValueError), match="dims"):
        getattr(native.kernels(level), f"layout_{precision}")(dims)


@settings(max_examples=200)
@given(extent=st.integers(-(2**70), 2**70).filter(lambda n: n < 2 or n % 2 or n > 2**16), where=st.integers(0, 3))
def test_extents_are_checked_in_python(extent, where):
    dims = [4] * 4
    dims[where] = extent
    with pytest.raises((SpecError, ValueError), match="`dims` must be"):
        GaugeField(dims)


@pytest.mark.parametrize("dims", [(4, 4, 4), (4,) * 5, (), [], np.array([4, 4]), [2**16] * 4, [True] * 4])
def test_dims_are_four_in_python(dims):
    with pytest.raises((SpecError, PlacementError, ValueError), match="`dims`"):
        GaugeField(dims)


@pytest.mark.parametrize(
    "dims",
    [
        (4.7, 4, 4, 4),
        (4.0, 4, 4, 4),
        np.full(4, 4.5),
        "4444",
        ("4", 4, 4, 4),
        ("a", 4, 4, 4),
        (None, 4, 4, 4),
        (4j, 4, 4, 4),
        (math.nan, 4, 4, 4),
        (math.inf, 4, 4, 4),
        None,
        4,
    ],
    ids=repr,
)
def test_dims_are_integers_in_python(dims):
    with pytest.raises((SpecError, TypeError, ValueError), match="`dims`"):
        GaugeField(dims)


@given(shape=st.lists(st.sampled_from([0, 1, 2, 3, 4]), max_size=8))
def test_host_links_have_their_shape(shape):
    shape = tuple(shape)
    if shape[4:] == (4, 3, 3) and all(n in (2, 4) for n in shape[:4]):
        assert GaugeField.from_links(np.ones(shape)).dims == shape[3::-1]
    else:
        with pytest.raises(SpecError, match=r"`links`.*shape|`dims`.*even"):
            GaugeField.from_links(np.ones(shape))


@pytest.mark.parametrize("bad", [None, 1.0, "links", [[1.0]], {}, np.ones((4, 3, 3))])
def test_host_links_are_arrays(bad):
    with pytest.raises(SpecError, match=r"`links`.*shape"):
        GaugeField.from_links(bad)


@pytest.mark.parametrize("beta", [math.nan, math.inf, -math.inf, -0.1])
def test_a_heat_bath_needs_a_temperature(beta):
    with pytest.raises(SpecError, match=r"`beta`.*>= 0"):
        GaugeField((2, 2, 2, 2)).heatbath(beta, seed=1, stream=0, step=1)
    with pytest.raises(SpecError, match=r"`beta`.*>= 0"):
        ChainSpec(dims=(2, 2, 2, 2), beta=beta)


@pytest.mark.parametrize(
    ("what", "word"),
    [
        ({"dims": (3, 4, 4, 4)}, "dims"),
        ({"dims": (4, 4, 4)}, "dims"),
        ({"hmc": HmcSpec(n_steps=0)}, "n_steps"),
        ({"hmc": HmcSpec(tau=-1.0)}, "tau"),
        ({"hmc": HmcSpec(tau=math.nan)}, "tau"),
        ({"hmc": HmcSpec(integrator="euler")}, "integrator"),
    ],
)
def test_a_chain_is_checked_when_it_is_named(what, word):
    with pytest.raises(MetalforgeError, match=word):
        ChainSpec(**({"dims": (4, 4, 4, 4), "beta": 5.7} | what))


@pytest.mark.parametrize("precision", ["f16", "double", "", None])
def test_precisions_are_named(precision):
    with pytest.raises(SpecError, match=r"`precision`.*f64.*f32"):
        GaugeField((2, 2, 2, 2), precision=precision)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e200, 0.0])
@pytest.mark.parametrize("dims", [(2, 2, 2, 2), (4, 4, 4, 4)])
def test_broken_links_end_in_broken_numbers_not_in_a_loop(level, monkeypatch, value, dims):
    """Links in the layout are not checked: no kernel may hang or crash on what an overflow leaves there."""
    monkeypatch.setenv("METALFORGE_ISA", level)
    field = GaugeField(dims, threads=1)
    momenta = Momenta(field)
    field.links[0, :] = value
    momenta.values[1, :] = value
    with np.errstate(all="ignore"):
        for act in (
            lambda: momenta.evolve(5.7, np.array([[1.0, 0.1], [0.0, 0.1]])),
            lambda: field.heatbath(5.7, seed=1, stream=0, step=1),
            field.overrelax,
            field.reunitarise,
        ):
            act()
        sums = [*field.plaquette_sums(), *field.clover(), momenta.kinetic()]
    assert all(isinstance(s, float) for s in sums)
    assert field.links.shape[1:3] == (4, 18)
