"""Files that are small and ask for much, or that say what a terminal would obey: each was fatal once, or could be."""

import struct
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from onnx import helper

from reference.onnx_models import constant, model, node

ROW = {"x": ["n", 4]}
COLOURED = "\x1b[31mred\x1b]0;title\x07\nerror: nothing\u202egnihton\x9b2J"
"""A name that would colour a terminal, rename it, add a line, turn letters round and clear the screen."""


def _chain(steps, inputs=ROW, constants=(), outputs=None):
    """A model of nodes one after the other: (operator, further inputs, attributes)."""
    nodes, last = [], "x"
    for i, (op, more, attributes) in enumerate(steps):
        nodes.append(node(op, [last if name == "<" else name for name in (more or ["<"])], [f"v{i}"], **attributes))
        last = f"v{i}"
    return model(nodes, inputs, [last], constants).SerializeToString()


def doublings(count=40):
    """What comes in, doubled again and again."""
    return _chain([("Concat", ["<", "<"], {"axis": 1})] * count)


def constant_doublings(count=40):
    """A constant, doubled again and again while it is folded."""
    nodes = [node("Concat", [f"c{i}", f"c{i}"], [f"c{i + 1}"], axis=0) for i in range(count)]
    nodes += [node("ReduceSum", [f"c{count}"], ["s"], keepdims=0), node("Add", ["x", "s"], ["y"])]
    return model(nodes, ROW, ["y"], [constant("c0", np.ones(4, np.float32))]).SerializeToString()


def doublings_that_just_fit():
    """Arrays of a size that one may have, and twenty of them."""
    return _chain([("Concat", ["<", "<"], {"axis": 1})] * 24 + [("Neg", None, {})] * 20)


def many_constants(count=300):
    """Arrays of 16 MB, by three bytes each."""
    nodes = [node("ConstantOfShape", ["size"], [f"z{i}"]) for i in range(count)]
    nodes += [node("Sum", [f"z{i}" for i in range(count)], ["t"]), node("ReduceSum", ["t"], ["s"], keepdims=0)]
    nodes.append(node("Add", ["x", "s"], ["y"]))
    return model(nodes, ROW, ["y"], [constant("size", np.array([2**22]))]).SerializeToString()


def one_constant():
    """One of 400 MB."""
    nodes = [node("Expand", ["one", "size"], ["c"]), node("ReduceSum", ["c"], ["s"], keepdims=0)]
    nodes.append(node("Add", ["x", "s"], ["y"]))
    constants = [constant("size", np.array([10**8])), constant("one", np.ones(1, np.float32))]
    return model(nodes, ROW, ["y"], constants).SerializeToString()


def _with_functions(bodies, opset=21):
    """A model that calls f0; `bodies` has what each function calls, one after the other."""
    made = model([node("f0", ["x"], ["y"], domain="mine")], ROW, ["y"], domains=["mine"], opset=opset)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    for name, calls in bodies.items():
        names = ["x", *(f"t{i}" for i in range(len(calls) - 1)), "y"]
        nodes = [
            helper.make_node(call, [a], [b], domain="mine" if call in bodies else "")
            for call, (a, b) in zip(calls, pairwise(names), strict=True)
        ]
        made.functions.append(helper.make_function("mine", name, ["x"], ["y"], nodes, opsets))
    return made.SerializeToString()


def nested_functions(depth=21):
    """Functions that call the next one twice: two million nodes in a kilobyte."""
    return _with_functions({f"f{i}": [f"f{i + 1}" if i < depth - 1 else "Relu"] * 2 for i in range(depth)})


def deep_functions(depth=1500):
    """Functions that call the next one, and so on."""
    return _with_functions({f"f{i}": [f"f{i + 1}" if i < depth - 1 else "Relu"] for i in range(depth)})


def a_recursive_function():
    """One that calls itself."""
    return _with_functions({"f0": ["f0"]})


def functions_in_a_circle():
    """Two that call each other."""
    return _with_functions({"f0": ["f1"], "f1": ["f0"]})


def many_nodes(count=3000):
    """Activations, one after the other."""
    return _chain([("Relu", None, {})] * count)


def many_parts(count=500):
    """Products between what only the host runs: as many sessions."""
    steps = [("MatMul", ["<", "w"], {}), ("Abs", None, {})] * count
    return _chain(steps, constants=[constant("w", np.eye(4, dtype=np.float32))])


def a_ladder_of_parts(count=250):
    """Two chains that lean on each other: the most that joining regions can be asked."""
    nodes, left, right = [], "x", "x"
    for i in range(count):
        nodes += [node("MatMul", [left, "w"], [f"p{i}"]), node("Abs", [right], [f"q{i}"])]
        nodes += [node("Add", [f"p{i}", f"q{i}"], [f"l{i}"]), node("Mul", [f"p{i}", f"q{i}"], [f"r{i}"])]
        left, right = f"l{i}", f"r{i}"
    weights = [constant("w", np.eye(4, dtype=np.float32))]
    return model(nodes, ROW, [left, right], weights).SerializeToString()


def one_name(count=1000):
    """As many nodes of one name."""
    nodes = [node("Relu", [f"v{i}" if i else "x"], [f"v{i + 1}"], name="same") for i in range(count)]
    return model(nodes, ROW, [f"v{count}"]).SerializeToString()


def a_sum_of_many(count=20_000):
    """One node that reads a value very often."""
    return model([node("Sum", ["x"] * count, ["y"])], ROW, ["y"]).SerializeToString()


def many_inputs(count=1500):
    """A model with as many inputs."""
    names = [f"x{i}" for i in range(count)]
    return model([node("Sum", names, ["y"])], {name: ["n", 4] for name in names}, ["y"]).SerializeToString()


def many_dimensions(count=500):
    """An input of five hundred axes."""
    return model([node("Relu", ["x"], ["y"])], {"x": ["n", *[1] * count]}, ["y"]).SerializeToString()


def padding():
    """A few cells, padded to more than there is."""
    return model(
        [node("Pad", ["x", "p"], ["y"])], ROW, ["y"], [constant("p", np.array([0, 2**60, 0, 2**60]))]
    ).SerializeToString()


def a_wide_convolution():
    """Padding within a convolution, to 2^26 cells."""
    nodes = [node("Conv", ["x", "w"], ["y"], pads=[2**12] * 4)]
    return model(
        nodes, {"x": ["n", 1, 4, 4]}, ["y"], [constant("w", np.ones((1, 1, 3, 3), np.float32))]
    ).SerializeToString()


def a_long_recurrence():
    """A recurrent network of a hundred thousand steps of one number."""
    shapes = {"w": (1, 3, 1), "r": (1, 3, 1)}
    constants = [constant(name, np.ones(shape, np.float32)) for name, shape in shapes.items()]
    nodes = [node("GRU", ["x", "w", "r"], ["y"], hidden_size=1)]
    return model(nodes, {"x": [3 * 10**6, "n", 1]}, ["y"], constants).SerializeToString()


def coloured_nodes():
    """Names of nodes and operators that a terminal would obey."""
    nodes = [node("Abs", ["x"], ["t"], name=COLOURED), node("Relu", ["t"], ["y"], name=COLOURED + "2")]
    return model(nodes, ROW, ["y"]).SerializeToString()


def coloured_values():
    """Names of values that a terminal would obey, of an input that is refused."""
    return model([node("Relu", [COLOURED], ["y"])], {COLOURED: ["n", "m", "k", 4]}, ["y"]).SerializeToString()


def a_coloured_operator():
    """An operator that a terminal would obey."""
    return model([node(COLOURED, ["x"], ["y"], domain=COLOURED)], ROW, ["y"], domains=[COLOURED]).SerializeToString()


def a_coloured_function():
    """A function of such a name that calls itself."""
    made = model([node(COLOURED, ["x"], ["y"], domain="mine")], ROW, ["y"], domains=["mine"])
    call = helper.make_node(COLOURED, ["x"], ["y"], domain="mine")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    made.functions.append(helper.make_function("mine", COLOURED, ["x"], ["y"], [call], opsets))
    return made.SerializeToString()


def an_array_of_any_size():
    """A header, and nothing of what it says."""
    return array(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**7}, {10**7}), }}")


def array(header):
    """An .npy file with any header."""
    text = header.encode("latin1").ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


MODELS: tuple[Callable[[], bytes], ...] = (
    *(doublings, constant_doublings, doublings_that_just_fit, many_constants, one_constant),
    *(nested_functions, deep_functions, a_recursive_function, functions_in_a_circle),
    *(many_nodes, a_sum_of_many, many_inputs, many_dimensions, padding, a_wide_convolution),
    *(coloured_nodes, coloured_values, a_coloured_operator, a_coloured_function),
)
"""Models in ONNX, each a function that makes the bytes."""
LARGE: tuple[Callable[[], bytes], ...] = (many_parts, a_ladder_of_parts, one_name, a_long_recurrence)
"""Those that are as large as a model may be."""
