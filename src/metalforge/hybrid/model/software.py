r"""Every op computed on the host, in the graph's own real type: the reference for what devices compute.

`evaluate` is one op as a function: inputs, state and present weights in, outputs out. `SoftwareModel`
runs a whole graph with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from metalforge.core import Array, SpecError
from metalforge.reservoir import BlockSparse, EsnEngine, EsnWeights, activation, leaky_step

from . import ops
from .graph import Node, OpGraph
from .inputs import check_inputs

UPDATES = (ops.GradientUpdate, ops.MutationUpdate)


def evaluate(
    op: ops.Op, inputs: Sequence[Array], *, state: Array | None = None, weights: Array | None = None, call: int = 0
) -> tuple[Array, ...]:
    """Return the outputs of an op; that of one with a state is its state for the next call too.

    `state` is that of the last call, None at rest. `weights` is the present matrix of a fully connected op or of the op
    that an update changes; None means the op's own. `call` counts calls from 0, for mutations.
    """
    if isinstance(op, ops.SoftwareOnly):
        return tuple(op.run(inputs))
    if isinstance(op, ops.RecurrentSequence):
        return op.steps(inputs, lambda u, s: _recurrent_step(op.weights, u, s))
    return (_output(op, inputs, state, weights, call),)


def _output(op: ops.Op, inputs: Sequence[Array], state: Array | None, weights: Array | None, call: int) -> Array:
    """Return the one output of an op."""
    match op:
        case ops.RecurrentStep():
            return _recurrent_step(op.weights, inputs[0], state)
        case ops.TemporalIntegration():
            x = inputs[0]
            a = x.dtype.type(op.leak)
            return np.asarray((1 - a) * kept_state(state, x.shape, x.dtype) + a * x)
        case ops.FullyConnectedOp():
            x = inputs[0]
            w = (op.matrix if weights is None else weights).astype(x.dtype, copy=False)
            y = x @ w.T
            return np.asarray(y if op.bias is None else y + op.bias.astype(x.dtype, copy=False))
        case ops.Elementwise():
            return softmax(inputs[0], axis=-1) if op.function == "softmax" else activation(op.function).value(inputs[0])
        case ops.FanOutOp():
            return inputs[0]
        case ops.Concat():
            return np.concatenate(inputs, axis=op.axis)
        case ops.Add():
            return np.asarray(sum(inputs[1:], start=inputs[0]))
        case ops.Gradient():
            x, y, target = inputs
            slope = (y - target) * y.dtype.type(2 / y.shape[1]) if op.loss == "mse" else softmax(y, axis=-1) - target
            return np.asarray(slope.T @ x / y.dtype.type(len(x)))
        case ops.GradientUpdate() if weights is not None:
            return np.asarray(weights - weights.dtype.type(op.rate) * inputs[0])
        case ops.MutationUpdate() if weights is not None:
            rng = np.random.default_rng((op.seed, call))
            chosen = rng.random(weights.shape) < op.fraction
            moved = weights + (op.scale * rng.normal(size=weights.shape)).astype(weights.dtype)
            return np.where(chosen, moved, weights)
        case ops.GradientUpdate() | ops.MutationUpdate():
            raise SpecError(f"an update wants the present `weights` of node `{op.of}`")
        case _:
            raise SpecError(f"software has no op of kind `{op.kind}` ({type(op).__name__})")


def _recurrent_step(w: EsnWeights, u: Array, state: Array | None) -> Array:
    """Return s' = (1 - a) s + a f(W_in u + W_res s + b), one row per sample."""
    w = w if w.dtype == u.dtype else w.astype(u.dtype)
    s = kept_state(state, (len(u), w.units), u.dtype)
    try:
        return _engine(w).step(s, u)
    except (OverflowError, ValueError):
        pass  # a state that leaves the finite numbers is shown as it is
    w_res = w.w_res.to_dense() if isinstance(w.w_res, BlockSparse) else w.w_res
    # W s for columns s: a CSR matrix multiplies from the left only without a copy of its transpose.
    pre = u @ w.w_in.T + (w_res @ s.T).T + w.bias
    return leaky_step(s, pre, w.activation, u.dtype.type(w.leak))


@lru_cache(maxsize=32)
def _engine(weights: EsnWeights) -> EsnEngine:
    """Return the kernels of a network; weights are compared as objects."""
    return EsnEngine(weights)


def kept_state(state: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the state, or rest where there is none yet."""
    if state is None:
        return np.zeros(shape, dtype)
    if state.shape != shape:
        raise SpecError(
            f"the state has shape {state.shape} and this call wants {shape}: one row per sample, from call to call"
            "\nhint: reset() before a batch of another size"
        )
    return state


def in_dtype(op: ops.Op, dtype: Any) -> ops.Op:
    """Return the op with its real parameters in another real type, so that no call converts them."""
    match op:
        case ops.FullyConnectedOp():
            bias = None if op.bias is None else op.bias.astype(dtype, copy=False)
            return replace(op, weights=op.matrix.astype(dtype, copy=False), bias=bias)
        case ops.RecurrentStep():
            w = op.weights if op.weights.dtype == dtype else op.weights.astype(dtype)
            return replace(op, weights=replace(w, w_res=w.w_res.to_dense()) if isinstance(w.w_res, BlockSparse) else w)
        case _:
            return op


class SoftwareModel:
    """A graph that runs on the host. It keeps its own state and its own copy of weights that updates change.

    Updates take effect when a call ends: all nodes of a call see the weights that it began with.
    """

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph
        self.ops = {node.name: in_dtype(node.op, graph.dtype) for node in graph.nodes}
        self.reset()

    def reset(self) -> None:
        """Start anew: states at rest, weights as the graph has them, calls from 0."""
        self.state: dict[str, Array] = {}
        self.weights: dict[str, Array] = {
            name: op.matrix.copy() for name, op in self.ops.items() if isinstance(op, ops.FullyConnectedOp)
        }
        self.calls = 0

    def forward(self, inputs: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Return the graph's outputs by name for one call: a batch of samples, each at its next time step."""
        call = GraphCall(self, check_inputs(self.graph, inputs))
        for node in self.graph.nodes:
            call.compute(node)
        return self.accept(call)

    def accept(self, call: "GraphCall") -> dict[str, Array]:
        """Let what a call changed take effect, now that all of it has succeeded, and return its outputs."""
        self.state, self.weights, self.calls = call.states, call.weights, self.calls + 1
        return {name: call.values[name] for name in self.graph.outputs}


class GraphCall:
    """One call of a graph on its way: the values made so far, and the states and weights that it will leave behind."""

    __slots__ = ("_model", "states", "values", "weights")

    def __init__(self, model: SoftwareModel, inputs: Mapping[str, Array]) -> None:
        self._model, self.values = model, dict(inputs)
        self.states, self.weights = dict(model.state), dict(model.weights)

    def compute(self, node: Node) -> None:
        """Compute a node on the host."""
        name, values = node.name, self.values
        op = self._model.ops[name]
        target = op.of if isinstance(op, UPDATES) else None
        try:
            found = evaluate(
                op,
                [values[value] for value in node.inputs],
                state=self.states.get(name),
                weights=self._model.weights.get(name) if target is None else self.weights[target],
                call=self._model.calls,
            )
        except SpecError as error:
            raise SpecError(f"node `{name}` ({op.kind}): {error}") from error
        values.update(zip(node.outputs, found, strict=True))
        if op.stateful:
            self.states[name] = found[0]
        if target is not None:
            self.weights[target] = found[0]
