"""Models of reservoirpy become networks here: the same states and outputs, on the chip as well."""

import numpy as np
import pytest
from reservoirpy.nodes import ES2N, RLS, Input, Reservoir, Ridge

from metalforge.core.errors import SpecError
from metalforge.hybrid.routing.router import OperationRouter
from metalforge.reservoir import EsnEngine, from_reservoirpy, load_weights, predict, save_weights

RNG = np.random.default_rng(7)
U = RNG.normal(size=(150, 3))
Y = np.column_stack([np.roll(U[:, 0], 1), U[:, 1] * U[:, 2]])


def reservoir(**options):
    return Reservoir(40, **({"lr": 0.4, "sr": 0.9, "seed": 1, "bias": 0.2} | options))


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "relu", "identity"])
@pytest.mark.parametrize("connectivity", [0.1, 1.0])
def test_a_reservoir_has_the_same_states(activation, connectivity):
    node = reservoir(activation=activation, rc_connectivity=connectivity, sr=0.5)
    wanted = node.run(U)
    np.testing.assert_allclose(EsnEngine(from_reservoirpy(node)).run(U), wanted, atol=1e-12)


@pytest.mark.parametrize("readout", [lambda: Ridge(ridge=1e-3), lambda: Ridge(ridge=1e-2, fit_bias=False), RLS])
@pytest.mark.parametrize("inputs_too", [False, True])
def test_a_model_has_the_same_outputs(readout, inputs_too, tmp_path):
    if inputs_too:
        source = Input()
        model = [source, source >> reservoir()] >> readout()
    else:
        model = reservoir() >> readout()
    model.fit(U, Y)
    model.reset()
    wanted = model.run(U)
    network = from_reservoirpy(model)
    assert network.passthrough == inputs_too
    np.testing.assert_allclose(predict(network, U), wanted, atol=1e-9)
    save_weights(network, tmp_path / "network.safetensors")
    np.testing.assert_array_equal(predict(load_weights(tmp_path / "network.safetensors"), U), predict(network, U))


def test_a_fitted_model_is_placed_as_it_is():
    model = reservoir() >> Ridge(ridge=1e-3)
    model.fit(U, Y)
    plan = OperationRouter(objective="hw_only").plan(model, calibration={"input": U[:20]})
    assert plan.jobs
    assert from_reservoirpy(model).ridge == 1e-3


def changed(**changes):
    node = reservoir()
    node.run(U)
    for name, value in changes.items():
        setattr(node, name, value)
    return node


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (3, "Got int"),
        (reservoir(), "no weights yet"),
        (reservoir() >> Ridge(), "no weights yet"),
        (Ridge(), "one Reservoir"),
        (reservoir() >> reservoir(seed=2) >> Ridge(), "Got Reservoir, Reservoir, Ridge"),
        (ES2N(20), "Got ES2N"),
        (changed(lr=np.linspace(0.1, 0.9, 40)), "one for each unit"),
        (changed(activation=np.sin), "activation `sin`"),
        (changed(activation=np.tanh), "activation `tanh`"),
    ],
    ids=["a number", "a node", "a model", "a readout", "two", "another kind", "leaks", "sine", "another tanh"],
)
def test_what_has_no_place_is_refused_by_name(model, word):
    with pytest.raises(SpecError, match=word):
        from_reservoirpy(model)


def test_feedback_is_refused():
    node, readout = reservoir(), Ridge(ridge=1e-3)
    model = (node >> readout) & (node << readout)
    model.fit(U, Y)
    with pytest.raises(SpecError, match="feedback"):
        from_reservoirpy(model)
