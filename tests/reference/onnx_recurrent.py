r"""RNN, GRU and LSTM in NumPy, the oracle where `onnx.reference` has only some of their forms.

Over a sequence (time, batch, inputs), forwards, backwards or both.

With sigma the first activation and X W^T + H R^T + b written as a(.) for each gate:

    RNN   H' = f(a_h)
    GRU   z = sigma(a_z), r = sigma(a_r), H' = (1 - z) h + z H
          h = tanh(W_h x + R_h (r H) + b), or tanh(W_h x + b_w + r (R_h H + b_r)) with `linear_before_reset`
    LSTM  i, o, f = sigma(a_i + p_i C), sigma(a_o + p_o C'), sigma(a_f + p_f C)
          C' = f C + i tanh(a_c),  H' = o tanh(C')
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metalforge.reservoir.activations import ACTIVATIONS

Array = NDArray[Any]
Step = Callable[[Array, Array, Array], tuple[Array, Array]]
FUNCTIONS = {"tanh": "tanh", "sigmoid": "sigmoid", "relu": "relu"}
"""Activations of gates, by their ONNX name in lower case."""


def _functions(names: Sequence[str], default: Sequence[str], direction: int) -> list[Callable[[Array], Array]]:
    """Return the activations of one direction: the default ones, or those of the attribute."""
    count = len(default)
    given = [name.lower() for name in names[direction * count : (direction + 1) * count]] or list(default)
    for name in given:
        if name not in FUNCTIONS:
            raise ValueError(f"activation `{name}` of a gate is not supported; supported: {', '.join(FUNCTIONS)}")
    if len(given) != count:
        raise ValueError(f"{count} activations per direction are wanted. Got {', '.join(names)}")
    return [ACTIVATIONS[FUNCTIONS[name]].value for name in given]


def _scan(step: Step, parts: Array, h: Array, c: Array, *, backwards: bool) -> tuple[Array, Array, Array]:
    """Return all H (time, batch, units), the last H and the last C, from the input parts of the gates."""
    found = np.empty((len(parts), *h.shape), h.dtype)
    for t in range(len(parts))[:: -1 if backwards else 1]:
        h, c = step(parts[t], h, c)
        found[t] = h
    return found, h, c


def _run(
    build: Callable[[int, Array, Array], Step],
    weights: tuple[Array, Array, Array],
    optional: tuple[Array | None, Array | None, Array | None, Array | None],
    gates: int,
    hidden_size: int,
    direction: str,
    layout: int,
) -> tuple[Array, Array, Array]:
    """Return Y (time, directions, batch, units), the last H and the last C (directions, batch, units).

    `build` makes the step of a direction from its number, R and its biases. `weights` are X, W and R;
    `optional` are B, the lengths, the first H and the first C.
    """
    if layout:
        raise ValueError("`layout` must be 0: (time, batch, inputs)")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise ValueError(f"unknown direction {direction}")
    (x, w, r), (b, lengths, h0, c0) = weights, optional
    if lengths is not None and np.any(lengths != len(x)):
        raise ValueError("`sequence_lens` other than the whole length are not supported")
    directions, batch = (2 if direction == "bidirectional" else 1), x.shape[1]
    units = r.shape[2]
    wanted = (directions, gates * units, x.shape[2]), (directions, gates * units, units)
    if (w.shape, r.shape) != wanted or hidden_size not in (0, units):
        raise ValueError(
            f"weights of {wanted[0]} and {wanted[1]} are wanted for {units} units. Got {w.shape}, {r.shape}"
        )
    biases = np.zeros((directions, 2 * gates * units), x.dtype) if b is None else b
    rest = np.zeros((directions, batch, units), x.dtype)
    h, c = rest if h0 is None else h0, rest if c0 is None else c0
    found = []
    for d in range(directions):
        b_w, b_r = biases[d, : gates * units], biases[d, gates * units :]
        # The inputs' share of all gates is one product for the whole sequence.
        parts = x @ w[d].T + b_w
        backwards = direction == "reverse" or d == 1
        found.append(_scan(build(d, r[d], b_r), parts, h[d], c[d], backwards=backwards))
    y, last_h, last_c = (np.stack(part) for part in zip(*found, strict=True))
    return y.transpose(1, 0, 2, 3), last_h, last_c


def rnn(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: Array | None = None,
    h0: Array | None = None,
    *,
    hidden_size: int = 0,
    direction: str = "forward",
    activations: Sequence[str] = (),
    layout: int = 0,
) -> tuple[Array, Array]:
    """Return Y and the last H."""

    def build(d: int, r_d: Array, b_r: Array) -> Step:
        (f,) = _functions(activations, ("tanh",), d)
        return lambda part, h, c: (f(part + h @ r_d.T + b_r), c)

    return _run(build, (x, w, r), (b, lengths, h0, None), 1, hidden_size, direction, layout)[:2]


def gru(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: Array | None = None,
    h0: Array | None = None,
    *,
    hidden_size: int = 0,
    direction: str = "forward",
    activations: Sequence[str] = (),
    linear_before_reset: int = 0,
    layout: int = 0,
) -> tuple[Array, Array]:
    """Return Y and the last H; the gates of W, R and B are in the order z, r, h."""

    def build(d: int, r_d: Array, b_r: Array) -> Step:
        f, g = _functions(activations, ("sigmoid", "tanh"), d)
        n = r_d.shape[1]

        def step(part: Array, h: Array, c: Array) -> tuple[Array, Array]:
            gates = f(part[:, : 2 * n] + h @ r_d[: 2 * n].T + b_r[: 2 * n])
            z, reset = gates[:, :n], gates[:, n:]
            if linear_before_reset:
                inner = reset * (h @ r_d[2 * n :].T + b_r[2 * n :])
            else:
                inner = (reset * h) @ r_d[2 * n :].T + b_r[2 * n :]
            return (1 - z) * g(part[:, 2 * n :] + inner) + z * h, c

        return step

    return _run(build, (x, w, r), (b, lengths, h0, None), 3, hidden_size, direction, layout)[:2]


def lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: Array | None = None,
    h0: Array | None = None,
    c0: Array | None = None,
    peepholes: Array | None = None,
    *,
    hidden_size: int = 0,
    direction: str = "forward",
    activations: Sequence[str] = (),
    layout: int = 0,
    input_forget: int = 0,
) -> tuple[Array, Array, Array]:
    """Return Y, the last H and the last C; the gates of W, R and B are in the order i, o, f, c, of P i, o, f."""
    if input_forget:
        raise ValueError("`input_forget` must be 0")

    def build(d: int, r_d: Array, b_r: Array) -> Step:
        f, g, k = _functions(activations, ("sigmoid", "tanh", "tanh"), d)
        n = r_d.shape[1]
        p_i, p_o, p_f = np.zeros((3, n), r_d.dtype) if peepholes is None else peepholes[d].reshape(3, n)

        def step(part: Array, h: Array, c: Array) -> tuple[Array, Array]:
            i, o, forget, cell = np.split(part + h @ r_d.T + b_r, 4, axis=1)
            new = f(forget + p_f * c) * c + f(i + p_i * c) * g(cell)
            return f(o + p_o * new) * k(new), new

        return step

    return _run(build, (x, w, r), (b, lengths, h0, c0), 4, hidden_size, direction, layout)


RECURRENT: Mapping[str, Callable[..., Any]] = {"RNN": rnn, "GRU": gru, "LSTM": lstm}
