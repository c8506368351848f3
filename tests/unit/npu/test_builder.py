"""`ProgramBuilder`: what it builds, and what it says when the steps cannot lead to a program."""

import numpy as np
import pytest

from metalforge.core.errors import UnknownNameError
from metalforge.substrates.npu.builder import ProgramBuilder
from metalforge.substrates.npu.program import Activation, Encoding, FullyConnected, Head, Program, ProgramError

FIRST = np.arange(30).reshape(6, 5) % 15 - 7
SECOND = np.arange(20).reshape(5, 4) % 3 - 1


def hidden():
    return ProgramBuilder("p").fully_connected("hidden", FIRST).activation("bounded_relu", bits=2, threshold=3)


def test_the_whole_chain_gives_the_program_that_the_records_would():
    built = (
        ProgramBuilder("demo")
        .fully_connected("hidden", FIRST, weight_bits=4, input_bits=2)
        .activation("bounded_relu", bits=4, threshold=[1, 2, 3, 4, 5], step=0.5)
        .fully_connected("out", SECOND, weight_bits=2)
        .activation("linear")
        .encoding(activation_bits=8, digits=2, signed="two_rail")
        .heads({"a": 1, "b": 1})
        .scales([0.5, 2])
        .schema("s")
        .provenance(seed=7, by="hand")
        .build()
    )
    by_hand = Program(
        name="demo",
        layers=(
            FullyConnected(
                name="hidden",
                weights=FIRST.astype(np.int8),
                input_bits=2,
                activation=Activation.BOUNDED_RELU,
                threshold=np.arange(1, 6, dtype=np.int32),
                act_step=np.full(5, 0.5, np.float32),
            ),
            FullyConnected(name="out", weights=SECOND.astype(np.int8), weight_bits=2),
        ),
    )
    assert built.fingerprint() == by_hand.fingerprint()
    assert [layer.name for layer in built.layers] == ["hidden", "out"]
    assert built.encoding == Encoding(activation_bits=8, digits=2, signed="two_rail")
    assert built.heads == (Head(name="a", start=0, width=1), Head(name="b", start=1, width=1))
    assert built.scales.tolist() == [0.5, 2.0]
    assert (built.name, built.schema) == ("demo", "s")
    assert built.provenance == (("seed", "7"), ("by", "hand"))


def test_defaults_a_layer_alone_is_linear_with_scales_of_one():
    program = ProgramBuilder("p").fully_connected("out", [[1, -7], [0, 7]]).build()
    assert program.layers[0].activation is Activation.LINEAR
    assert (program.layers[0].weight_bits, program.layers[0].input_bits) == (4, 4)
    assert program.scales.tolist() == [1.0, 1.0]
    assert (program.heads, program.schema, program.provenance) == ((), "", ())


def test_a_layer_takes_the_bits_that_the_one_before_gives():
    assert hidden().fully_connected("out", SECOND).build().layers[1].input_bits == 2


def test_steps_leave_the_builder_they_start_from_as_it_was():
    base = hidden()
    short, long = base.build(), base.fully_connected("out", SECOND).provenance(a=1).build()
    assert (len(short.layers), len(long.layers)) == (1, 2)
    assert base.build().provenance == ()


def test_later_changes_to_the_callers_array_do_not_reach_the_program():
    weights, scales = FIRST.astype(np.int8), np.ones(5)
    program = ProgramBuilder("p").fully_connected("out", weights).scales(scales).build()
    weights[:] = scales[:] = 0
    assert np.array_equal(program.layers[0].weights, FIRST)
    assert program.scales.tolist() == [1.0] * 5


def test_one_scale_serves_all_outputs_and_heads_may_say_where_they_start():
    program = hidden().scales(0.25).heads({"late": (3, 2), "early": (0, 2)}).build()
    assert program.scales.tolist() == [0.25] * 5
    assert program.heads[0] == Head(name="late", start=3, width=2)
    following = hidden().heads({"a": (1, 2), "b": 2}).build()
    assert following.heads[1].start == 3


def test_a_key_given_again_replaces_its_text():
    assert hidden().provenance(a="1", b="2").provenance(a="3").build().provenance == (("a", "3"), ("b", "2"))


def test_an_unknown_activation_gets_its_nearest_match():
    with pytest.raises(UnknownNameError, match="did you mean `bounded_relu`") as caught:
        ProgramBuilder("p").fully_connected("out", FIRST).activation("bounded-relu")
    assert "known: bounded_relu, linear" in str(caught.value)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda: ProgramBuilder("p").build(), "at least one layer"),
        (lambda: ProgramBuilder("p").activation("linear"), "there is no layer yet; call `fully_connected` first"),
        (lambda: hidden().activation("linear"), "layer `hidden` has one"),
        (lambda: hidden().fully_connected("out", SECOND[:4]), "`hidden` gives 5 lines of 2 bits, `out` wants 4 of 2"),
        (lambda: hidden().fully_connected("out", SECOND, input_bits=4), "5 lines of 2 bits, `out` wants 5 of 4"),
        (lambda: hidden().fully_connected("hidden", SECOND), "different names"),
        (
            lambda: ProgramBuilder("p").fully_connected("a", FIRST).fully_connected("b", SECOND),
            "`a` is not the last and must have a bounded ReLU",
        ),
        (lambda: ProgramBuilder("p").fully_connected("a", FIRST / 2), "`weights` must be integers: quantise"),
        (lambda: ProgramBuilder("p").fully_connected("a", [[1], [2, 3]]), "`weights` must be one array"),
        (lambda: ProgramBuilder("p").fully_connected("a", [[200]]), "must lie in -128 .. 127. Got 200"),
        (lambda: ProgramBuilder("p").fully_connected("a", [[2**70]]), "`weights` must be integers"),
        (lambda: ProgramBuilder("p").fully_connected("a", [[-8]]), "lie in -7 .. 7. Got -8"),
        (lambda: ProgramBuilder("p").fully_connected("a", [1, 2]), "shape \\(inputs, units\\)"),
        (lambda: ProgramBuilder("p").fully_connected("a", FIRST, weight_bits=3), "weight bits must be 1, 2 or 4"),
        (lambda: ProgramBuilder("").fully_connected("", FIRST), "1 to 100 printable"),
    ],
)
def test_steps_that_lead_nowhere(steps, message):
    with pytest.raises(ProgramError, match=message):
        steps()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bits": 3}, "activation bits must be 1, 2 or 4"),
        ({"threshold": [1, 2]}, "`threshold` must be one number or 5, one per unit. Got shape \\(2,\\)"),
        ({"threshold": []}, "`threshold` must be integers"),
        ({"threshold": 0.5}, "`threshold` must be integers"),
        ({"threshold": 1 << 19}, "signed 20-bit"),
        ({"threshold": 1 << 40}, "must lie in -2147483648"),
        ({"step": float("nan")}, "finite numbers"),
        ({"step": 1e300}, "finite numbers"),
        ({"step": 0.01}, "1/16 .. 65535"),
        ({"step": "wide"}, "`step` must be real numbers"),
        ({"step": [[1.0] * 5]}, "one per unit"),
    ],
)
def test_activations_that_the_chip_does_not_take(arguments, message):
    with pytest.raises(ProgramError, match=message):
        ProgramBuilder("p").fully_connected("a", FIRST).activation("bounded_relu", **arguments)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda b: b.heads({"a": 4, "b": 2}), "head `b` at 4\\+2"),
        (lambda b: b.heads({"a": 0}), "head `a`"),
        (lambda b: b.heads({"a": 1.5}), "head `a` must be a width or \\(start, width\\). Got 1.5"),
        (lambda b: b.heads({"a": (1, 2, 3)}), "must be a width or \\(start, width\\)"),
        (lambda b: b.scales([1.0, 2.0]), "5 finite float64"),
        (lambda b: b.scales(float("inf")), "5 finite float64"),
        (lambda b: b.scales("one"), "`scales` must be real numbers"),
        (lambda b: b.encoding(digits=2), "5 units are not 2 digits"),
        (lambda b: b.encoding(digits=4), "1, 2 or 3 digits"),
        (lambda b: b.encoding(signed="both"), "unsigned, zero_point or two_rail"),
    ],
)
def test_what_the_host_cannot_use(steps, message):
    with pytest.raises(ProgramError, match=message):
        steps(hidden()).build()
