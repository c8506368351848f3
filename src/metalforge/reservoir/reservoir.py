"""A reservoir that remembers: state around an `EsnEngine`, with the output that a feedback will see next."""

import hashlib
import os
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from metalforge.core import PathLike, Reals, SpecError, opened, replacing

from .engine import EsnEngine
from .running import closed_loop
from .series import SeriesError, as_steps
from .sparse import arrays_of
from .weights import EsnWeights

STATE_FORMAT = "metalforge reservoir state 1"


class Reservoir:
    """A network and its state; `step` and `run` carry on where the last call ended, from rest at first.

    `state` is a copy; assigning to it checks shape and numbers. Without feedback `output` is only what was said last.
    """

    def __init__(self, weights: EsnWeights, *, threads: int | None = None) -> None:
        self.weights = weights
        self._threads = threads
        self._engine = EsnEngine(weights, threads=threads)
        self.reset()

    @property
    def state(self) -> Reals:
        """The state (units,), as a copy."""
        return self._state.copy()

    @state.setter
    def state(self, value: Any) -> None:
        self._state = _vector("state", value, self.weights.units, self.weights.dtype)

    @property
    def output(self) -> Reals:
        """The last output, as a copy: zero after a reset, empty for a network with neither readout nor feedback."""
        return self._output.copy()

    def reset(self, state: Any = None, output: Any = None) -> None:
        """Start anew from rest, or from a state and what was said before it."""
        width = self.weights.outputs or self.weights.feedback
        rest = np.zeros(self.weights.units) if state is None else state
        said = np.zeros(width) if output is None else output
        self._state = _vector("state", rest, self.weights.units, self.weights.dtype)
        self._output = _vector("output", said, width, self.weights.dtype)

    def fork(self) -> "Reservoir":
        """Return a second reservoir that goes its own way from here."""
        twin = Reservoir(self.weights, threads=self._threads)
        twin.reset(self._state, self._output)
        return twin

    def step(self, u: Any, *, teacher: Any = None) -> Reals:
        """Return the output after one input (inputs,); the state where there is no readout.

        `teacher` is what should have come out; a feedback will see it at the next step in place of the output.
        """
        w = self.weights
        u = np.asarray(u, w.dtype)
        if u.shape != (w.inputs,):
            raise SeriesError(f"`u` must have shape ({w.inputs},). Got {u.shape}\nhint: run(u) takes many steps")
        if w.feedback or teacher is not None:
            said = None if teacher is None else np.asarray(teacher)[None]
            state = self.run(u[None], teacher=said)[0]
            return state if w.w_out is None else w.output(state, u)
        self._state = self._engine.step(self._state, u)
        if w.w_out is None:
            return self._state.copy()
        self._output = w.output(self._state, u)
        return self._output.copy()

    def run(self, u: Any, *, teacher: Any = None, stateful: bool = True) -> Reals:
        """Return states (T, units) for inputs (T, inputs); with `stateful=False` the state stays where it was.

        `teacher` (K, outputs) is fed back after the first K steps in place of the network's own outputs.
        """
        w = self.weights
        u = as_steps("u", u, w.inputs, w.dtype)
        taught = np.zeros((0, w.feedback), w.dtype)
        if teacher is not None:
            if not w.feedback:
                raise SeriesError("`teacher` is what an output feedback sees; this network has none")
            taught = as_steps("teacher", teacher, w.feedback, w.dtype)
        missing = len(u) - len(taught)
        if missing < 0 or (missing and w.feedback and w.w_out is None):
            wanted = "at most" if w.w_out is not None else "without a readout exactly"
            raise SeriesError(f"`teacher` must hold {wanted} {len(u)} steps, as `u` does. Got {len(taught)}")
        states = (
            closed_loop(self._engine, w, u, taught, self._state, self._output)
            if w.feedback
            else self._engine.run(u, self._state)
        )
        if stateful:
            self._state = states[-1].copy()
            if not missing:
                self._output = taught[-1].copy()
            elif w.w_out is not None:
                self._output = w.output(self._state, u[-1])
        return states

    def save_state(self, path: PathLike) -> None:
        """Write state and output as safetensors with the fingerprint of the network they belong to."""
        data = save(
            {"state": self._state, "output": self._output},
            metadata={"format": STATE_FORMAT, "fingerprint": fingerprint(self.weights)},
        )
        with replacing(path) as stream:
            stream.write(data)

    def load_state(self, path: PathLike) -> None:
        """Take state and output from a file; a file of another network is refused."""
        with opened(path):
            try:
                with safe_open(os.fspath(path), framework="numpy") as file:
                    said, names = file.metadata() or {}, set(file.keys())
                    arrays = {name: file.get_tensor(name) for name in names}
            except SafetensorError as error:
                raise SpecError(f"not a safetensors file ({error})") from error
            if said.get("format") != STATE_FORMAT or names != {"state", "output"}:
                raise SpecError(f"not a saved reservoir state: it holds {', '.join(sorted(names)) or 'nothing'}")
            mine = fingerprint(self.weights)
            if said.get("fingerprint") != mine:
                raise SpecError(
                    f"the state of another network: its fingerprint is {said.get('fingerprint')}, this network's {mine}"
                )
            self.reset(arrays["state"], arrays["output"])


def fingerprint(weights: EsnWeights) -> str:
    """Return 16 hex digits that change with anything that shapes the state; another readout keeps them."""
    digest = hashlib.sha256(f"{weights.dtype} {weights.activation} {float(weights.leak).hex()}".encode())
    parts = [weights.w_in, *arrays_of(weights.w_res).values(), weights.bias]
    for part in parts if weights.w_fb is None else [*parts, weights.w_fb]:
        digest.update(f"{part.dtype.str} {part.shape}".encode())
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def _vector(name: str, value: Any, width: int, dtype: Any) -> Reals:
    if np.shape(value) != (width,):
        raise SeriesError(f"`{name}` must have shape ({width},). Got {np.shape(value)}")
    return np.zeros(0, dtype) if width == 0 else as_steps(name, np.array(value)[None], width, dtype)[0].copy()
