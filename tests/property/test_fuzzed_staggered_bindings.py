"""Whatever is thrown at the staggered kernels, an exception that names the argument comes back: never a crash."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metalforge import native
from reference import damaged_arrays
from reference.damaged_arrays import REAL, bigger, levels, no_integers, precisions, read_only

DIMS = (4, 4, 4, 4)

# Every entry point with its arguments in order.
CALLS = {
    "colour_pack": ("layout", "host", "field", "parity", "threads"),
    "colour_unpack": ("layout", "field", "host", "parity", "threads"),
    "colour_gaussian": ("layout", "field", "parity", "seed", "stream", "step", "draw", "threads"),
    "colour_dot": ("layout", "a", "b", "threads"),
    "colour_norm2": ("layout", "field", "threads"),
    "colour_combine": ("layout", "out", "field", "keep", "factor", "threads"),
    "staggered_refresh": ("operator", "links", "threads"),
    "staggered_hop": ("operator", "out", "source", "parity", "threads"),
    "staggered_normal": ("operator", "out", "source", "x", "scratch", "diagonal", "parity", "threads"),
    "staggered_force": ("operator", "momenta", "fields", "scratches", "coefficients", "threads"),
    "cg": ("operator", "n_shifts"),
    "cg_begin": ("operator", "solver", "residual", "again", "threads"),
    "cg_iterate": (
        *("operator", "solver", "solutions", "shifts", "diagonal"),
        *("target2", "iterations", "parity", "threads"),
    ),
    # these know both precisions
    "narrow_colours": ("map", "narrow", "wide", "factor", "parity", "threads"),
    "widen_colours": ("map", "wide", "narrow", "plain_keep", "factor", "parity", "threads"),
    "staggered_narrow": ("narrow_operator", "map", "wide_links", "threads"),
    "staggered_widen": ("wide_operator", "map", "narrow_links", "threads"),
}
BOTH = {"narrow_colours", "widen_colours", "staggered_narrow", "staggered_widen"}
SAID = {
    "scratches": "scratch",
    "wide_links": "links",
    "narrow_links": "links",
    "n_shifts": "shifts",
    "plain_keep": "keep",
    "narrow_operator": "operator",
    "wide_operator": "operator",
    "again": "keep",
}
"""How the kernel calls an argument, where this file needs another name."""
ARRAYS = {
    *("host", "field", "a", "b", "out", "source", "x", "scratch", "residual", "links", "momenta"),
    *("coefficients", "shifts", "narrow", "wide", "wide_links", "narrow_links"),
}
SEQUENCES = {"fields", "scratches", "solutions"}
INTEGERS = {"parity", "threads", "seed", "stream", "step", "draw", "iterations", "n_shifts"}
OBJECTS = {"layout", "operator", "solver", "map", "narrow_operator", "wide_operator"}
READS = {
    *(("colour_pack", "host"), ("colour_unpack", "field"), ("colour_dot", "a"), ("colour_dot", "b")),
    *(("colour_norm2", "field"), ("colour_combine", "field"), ("staggered_refresh", "links")),
    *(("staggered_hop", "source"), ("staggered_normal", "source"), ("staggered_normal", "x")),
    *(("staggered_force", "coefficients"), ("cg_begin", "residual"), ("cg_iterate", "shifts")),
    *(("narrow_colours", "wide"), ("widen_colours", "narrow")),
    *(("staggered_narrow", "wide_links"), ("staggered_widen", "narrow_links")),
}
"""What is only read, and may thus be read-only."""


def places(kinds):
    return [(name, a) for name, arguments in CALLS.items() for a in arguments if a in kinds]


def good(level, precision, dims=DIMS):
    """Valid arguments of every call."""
    module = native.kernels(level)

    def field(p=precision):
        layout = getattr(module, f"layout_{p}")(dims)
        return np.ones((layout.vectors // 2, 6, layout.lanes), REAL[p])

    def links(p=precision):
        layout = getattr(module, f"layout_{p}")(dims)
        return np.ones((layout.vectors, 4, 18, layout.lanes), REAL[p])

    layout = getattr(module, f"layout_{precision}")(dims)
    operator = getattr(module, f"staggered_{precision}")(layout)
    values = {name: field() for name in ("field", "a", "b", "out", "source", "x", "scratch", "residual")}
    return values | {
        "layout": layout,
        "operator": operator,
        "solver": getattr(module, f"cg_{precision}")(operator, 2),
        "host": np.ones((*dims[::-1], 3, 2)),
        "links": links(),
        "momenta": np.zeros((layout.vectors, 4, 8, layout.lanes), REAL[precision]),
        "fields": [field(), field()],
        "scratches": [field(), field()],
        "solutions": [field(), field()],
        "coefficients": np.array([1.0, 2.0]),
        "shifts": np.array([0.0, 0.5]),
        "map": module.precision_map(module.layout_f64(dims)),
        "narrow": field("f32"),
        "wide": field("f64"),
        "narrow_links": links("f32"),
        "wide_links": links("f64"),
        "narrow_operator": module.staggered_f32(module.layout_f32(dims)),
        "wide_operator": module.staggered_f64(module.layout_f64(dims)),
        "keep": 1.0,
        "plain_keep": 1.0,
        "factor": 0.5,
        "diagonal": 0.1,
        "target2": 1e-6,
        "iterations": 3,
        "n_shifts": 2,
        "again": False,
        "parity": 1,
        "seed": 1,
        "stream": 0,
        "step": 1,
        "draw": 5 << 28,
        "threads": 1,
    }


def call(level, precision, name, values):
    kernel = getattr(native.kernels(level), name if name in BOTH else f"{name}_{precision}")
    return kernel(*[values[a] for a in CALLS[name]])


def spoiled(level, precision, place, value):
    """A call with one argument replaced."""
    name, argument = place
    return call(level, precision, name, good(level, precision) | {argument: value})


def said(argument):
    return SAID.get(argument, argument)


DAMAGE = damaged_arrays.DAMAGE | {"one more at the front": lambda a: bigger(a, 0)}


def test_the_good_arguments_are_good(level):
    for precision in REAL:
        for name in CALLS:
            call(level, precision, name, good(level, precision))
    assert set(places(ARRAYS)) >= READS


@settings(max_examples=400)
@given(level=levels, precision=precisions, place=st.sampled_from(places(ARRAYS)), how=st.sampled_from(sorted(DAMAGE)))
def test_arrays_are_checked(level, precision, place, how):
    value = DAMAGE[how](good(level, precision)[place[1]])
    with pytest.raises((TypeError, ValueError), match=f"`{said(place[1])}`"):
        spoiled(level, precision, place, value)


@settings(max_examples=200)
@given(
    level=levels,
    precision=precisions,
    place=st.sampled_from(places(SEQUENCES)),
    how=st.sampled_from(sorted(DAMAGE)),
    which=st.integers(0, 1),
)
def test_every_array_of_a_sequence_is_checked(level, precision, place, how, which):
    values = good(level, precision)[place[1]]
    values[which] = DAMAGE[how](values[which])
    with pytest.raises((TypeError, ValueError), match=f"`{said(place[1])}`"):
        spoiled(level, precision, place, values)


@pytest.mark.parametrize("value", [None, 1, 1.0, [], (), {}, "ab", b"ab", object()])
@pytest.mark.parametrize("place", places(SEQUENCES), ids=lambda p: f"{p[0]}-{p[1]}")
def test_sequences_are_checked(level, place, value):
    with pytest.raises((TypeError, ValueError), match=f"`{said(place[1])}`"):
        spoiled(level, "f64", place, value)


def test_sequences_have_one_array_a_number(level):
    values = good(level, "f64")
    one = [values["field"]]
    with pytest.raises(ValueError, match="`coefficients`"):
        call(level, "f64", "staggered_force", values | {"fields": one})
    with pytest.raises(ValueError, match=r"`scratch`.*as many"):
        call(level, "f64", "staggered_force", values | {"scratches": one})
    with pytest.raises(ValueError, match=r"`solutions`.*one array"):
        call(level, "f64", "cg_iterate", values | {"solutions": one})
    with pytest.raises(ValueError, match=r"`solutions`.*1 to 64"):
        call(level, "f64", "cg_iterate", values | {"solutions": one * 65})


@settings(max_examples=60)
@given(level=levels, precision=precisions, place=st.sampled_from(places(ARRAYS)))
def test_only_what_is_written_must_be_writable(level, precision, place):
    value = read_only(good(level, precision)[place[1]])
    if place in READS:
        spoiled(level, precision, place, value)
    else:
        with pytest.raises(ValueError, match=f"`{said(place[1])}`.*read-only"):
            spoiled(level, precision, place, value)


@settings(max_examples=200)
@given(
    level=levels,
    precision=precisions,
    place=st.sampled_from(places(INTEGERS)),
    value=no_integers,
)
def test_integers_are_checked(level, precision, place, value):
    with pytest.raises((TypeError, ValueError), match=f"`{said(place[1])}`.*integer"):
        spoiled(level, precision, place, value)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *(("parity", 2), ("stream", 2**32), ("step", 2**32), ("draw", 2**32 - 3), ("threads", 0), ("threads", 1025)),
        *(("n_shifts", 0), ("n_shifts", 65), ("iterations", 2**31 + 1)),
    ],
)
def test_integers_have_their_ranges(level, argument, value):
    found = places({argument})
    assert found
    for place in found:
        with pytest.raises(ValueError, match=f"`{said(argument)}` must be"):
            spoiled(level, "f64", place, value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "place", places({"keep", "plain_keep", "factor", "diagonal", "target2"}), ids=lambda p: f"{p[0]}-{p[1]}"
)
def test_reals_are_finite(level, place, value):
    for precision in REAL:
        with pytest.raises(ValueError, match=f"`{said(place[1])}`.*finite"):
            spoiled(level, precision, place, value)


@pytest.mark.parametrize("place", [("staggered_force", "coefficients"), ("cg_iterate", "shifts")])
def test_lists_of_numbers_are_finite(level, place):
    with pytest.raises(ValueError, match=f"`{place[1]}`.*finite.*index 1"):
        spoiled(level, "f64", place, np.array([0.0, math.nan]))


def test_shifts_count_from_the_first(level):
    with pytest.raises(ValueError, match=r"`shifts`.*begin with 0"):
        spoiled(level, "f64", ("cg_iterate", "shifts"), np.array([0.1, 0.2]))


@pytest.mark.parametrize("place", places(OBJECTS), ids=lambda p: f"{p[0]}-{p[1]}")
def test_objects_are_of_one_kind_precision_and_level(level, place):
    other = {"f64": "f32", "f32": "f64"}
    for precision in REAL:
        strangers = [None, DIMS, object(), "layout"]
        wrong = good(level, precision)
        strangers += [
            wrong[name] for name in OBJECTS - {place[1]} if not isinstance(wrong[name], type(wrong[place[1]]))
        ]
        if place[0] not in BOTH:
            strangers.append(good(level, other[precision])[place[1]])
        strangers += [good(name, precision)[place[1]] for name in native.available_levels() if name != level]
        for stranger in strangers:
            with pytest.raises(TypeError):
                spoiled(level, precision, place, stranger)


def test_a_solver_belongs_to_one_lattice(level):
    solver = good(level, "f64", (4, 4, 4, 8))["solver"]
    for name in ("cg_begin", "cg_iterate"):
        with pytest.raises(ValueError, match=r"`solver`.*lattice.*`operator`"):
            spoiled(level, "f64", (name, "solver"), solver)


def test_a_map_belongs_to_one_lattice(level):
    other = good(level, "f64", (4, 4, 4, 8))["map"]
    for name in BOTH:
        with pytest.raises(ValueError, match=r"`(map|narrow|wide)` must be"):
            spoiled(level, "f64", (name, "map"), other)


def test_a_search_goes_on_for_one_shift_only(level):
    with pytest.raises(ValueError, match=r"`keep`.*False"):
        spoiled(level, "f64", ("cg_begin", "again"), True)


def test_a_solver_that_was_not_begun_is_done(level):
    """Its residual is zero; nothing is read that was never written."""
    values = good(level, "f64")
    done, residual2, state, updates = call(level, "f64", "cg_iterate", values)
    assert (done, residual2, state, updates) == (0, 0.0, 1, 0)
    assert all(np.all(x == 1) for x in values["solutions"])


def test_makers_refuse_strangers(level):
    module = native.kernels(level)
    for name in ("staggered_f64", "staggered_f32", "precision_map", "Staggered_f64", "ConjugateGradient_f64"):
        for stranger in (None, DIMS, 1, "layout"):
            with pytest.raises(TypeError):
                getattr(module, name)(stranger)
