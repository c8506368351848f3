"""A network with a state, for one sample or a batch: in software here, on other substrates in subclasses."""

import hashlib
import time
from copy import copy
from typing import Self

import numpy as np
from safetensors.numpy import save

from metalforge.core import Closing, PathLike, Reals, SpecError, opened, replacing

from .engine import EsnEngine, init
from .sparse import arrays_of
from .tensors import opened_tensors
from .weights import EsnWeights

STATE_FORMAT = "metalforge reservoir state 1"

STEPS_AT_ONCE = 4096
"""Steps that run without a break: others who share a device wait no longer than these take."""


class EsnNetwork(Closing):
    """A network that is stepped from Python, one sample or a batch at a time.

    Its state is (units,) or, after ``reset(batch=n)``, (n, units). `step` gives the output, or the state where there is
    no readout.
    """

    def __init__(self, weights: EsnWeights) -> None:
        self.weights = weights
        self._state: Reals = init(weights)
        self._output: Reals = np.zeros(max(weights.outputs, weights.feedback), weights.dtype)
        self._steps = 0
        self._host_s = 0.0
        self._engine = EsnEngine(weights)

    @property
    def state(self) -> Reals:
        """A copy of the state; may be set."""
        return self._state.copy()

    @state.setter
    def state(self, value: Reals) -> None:
        given = np.asarray(value, self.weights.dtype)
        if given.shape[-1:] != (self.weights.units,) or given.ndim > 2 or not np.all(np.isfinite(given)):
            raise SpecError(f"a state is finite, ({self.weights.units},) or (batch, units). Got shape {given.shape}")
        self._state = given.copy()
        self._output = np.zeros((*given.shape[:-1], self._output.shape[-1]), self.weights.dtype)

    def reset(self, *, batch: int | None = None) -> None:
        """Bring the state to rest, for one sample or for a batch."""
        self.state = init(self.weights, batch)

    def fork(self) -> Self:
        """Return the same network on the same substrate, with an independent copy of its state."""
        twin = copy(self)
        twin._state, twin._output = self._state.copy(), self._output.copy()
        return twin

    def save_state(self, path: PathLike) -> None:
        """Write the state and the last output as safetensors, with the fingerprint of the network."""
        said = {"format": STATE_FORMAT, "fingerprint": fingerprint(self.weights)}
        data = save({"state": self._state, "output": self._output}, metadata=said)
        with replacing(path) as stream:
            stream.write(data)

    def load_state(self, path: PathLike) -> None:
        """Take the state and the last output from a file; raise SpecError for a file of another network."""
        with opened(path), opened_tensors(path) as file:
            said, names = file.metadata() or {}, set(file.keys())
            if said.get("format") != STATE_FORMAT or names != {"state", "output"}:
                raise SpecError(f"not a saved reservoir state: it holds {', '.join(sorted(names)) or 'nothing'}")
            if kinds := {file.get_slice(name).get_dtype() for name in names} - {"F32", "F64"}:
                raise SpecError(f"a state is numbers of type F32 or F64. Got {', '.join(sorted(kinds))}")
            own, wanted = said.get("fingerprint"), fingerprint(self.weights)
            if own != wanted:
                raise SpecError(f"the state of another network: its fingerprint is {own}, this network's {wanted}")
            state, output = file.get_tensor("state"), np.asarray(file.get_tensor("output"), self.weights.dtype)
            if not state.size:
                raise SpecError(f"`state` must have at least one sample. Got shape {state.shape}")
            if output.shape != (*state.shape[:-1], self._output.shape[-1]) or not np.all(np.isfinite(output)):
                raise SpecError(f"`output` must be finite and of the shape of the outputs. Got shape {output.shape}")
            self.state, self._output = state, output

    def step(self, u: Reals) -> Reals:
        """Take one step with input (inputs,) or (batch, inputs); return the output, or the state without a readout."""
        started = time.perf_counter()
        given = self._move(u)
        if self.weights.w_out is not None:
            self._output = self._read(self._state, given)
        self._host_s += time.perf_counter() - started
        # Copies of what the next step starts from: callers may overwrite the result.
        if self.weights.w_out is None:
            return self._state.copy()
        return self._output.copy() if self.weights.feedback else self._output

    def advance(self, u: Reals) -> Reals:
        """Take one step without the readout; return the state itself, which must not be changed."""
        started = time.perf_counter()
        self._move(u)
        self._host_s += time.perf_counter() - started
        return self._state

    def run(self, u: Reals) -> Reals:
        """Step through (steps, inputs), or (batch, steps, inputs) from a state of that batch; return all outputs.

        The same bits as `step` by `step`.
        """
        given = np.asarray(u, self.weights.dtype)
        if given.ndim not in (2, 3):
            raise SpecError(f"`u` must have shape (steps, inputs) or (batch, steps, inputs). Got {given.shape}")
        steps = given.shape[-2]
        if not steps:
            width = self.weights.units if self.weights.w_out is None else self.weights.outputs
            return np.empty((*self._checked_input(given, 0).shape[:-1], width), self.weights.dtype)
        if self.weights.w_fb is not None:  # what was said last comes in beside what follows
            return np.stack([self.step(given[..., t, :]) for t in range(steps)], axis=-2)
        started = time.perf_counter()
        found = self._through(finite_input(self._checked_input(given, steps)))
        if self.weights.w_out is not None:
            # In products of one step each: one of all steps at once may round otherwise than `step` does.
            if found.ndim == 2:
                found = self._read(found[:, np.newaxis], given[:, np.newaxis])[:, 0]
            else:
                found = self._read(found.swapaxes(0, 1), given.swapaxes(0, 1)).swapaxes(0, 1)
            self._output = found[..., -1, :].copy()
        self._host_s += time.perf_counter() - started
        return found

    def close(self) -> None:
        """Give back what is held: nothing, in software."""

    def _through(self, given: Reals) -> Reals:
        """Move the state through (..., steps, inputs), which were looked at; return the states after each step."""
        steps, lead = given.shape[-2], given.shape[:-2]
        found = np.empty((*lead, steps, self.weights.units), self.weights.dtype)
        t = 0
        while t < steps:
            n = min(STEPS_AT_ONCE, steps - t)
            some = found[..., t : t + n, :]
            target = some if some.flags.c_contiguous else np.empty_like(some)
            if not self._many(given[..., t : t + n, :], self._state, target):
                n = 1
                some[..., 0, :] = self._next(given[..., t, :], self._state)
            elif target is not some:
                some[...] = target
            t += n
            self._state = found[..., t - 1, :].copy()
            self._steps += n * (lead[0] if lead else 1)
        return found

    def _move(self, u: Reals) -> Reals:
        """Take one step of the state; return the input as the network's real type."""
        weights, given, state = self.weights, self._checked_input(u), self._state
        full = given
        if weights.w_fb is not None:
            full = np.concatenate([given, self._output], axis=-1, dtype=weights.dtype)
        self._state = self._next(full, state)
        self._steps += 1 if state.ndim == 1 else len(state)
        return given

    def _read(self, states: Reals, u: Reals) -> Reals:
        """Return the outputs (..., outputs) of states and the inputs that led to them."""
        return self.weights.output(states, u)

    def _next(self, rows: Reals, states: Reals) -> Reals:
        """Return the states after inputs with feedback, of one sample or of a batch."""
        try:
            return self._engine.step(states, rows)
        except ValueError:
            finite_input(rows)
            raise

    def _many(self, u: Reals, states: Reals, out: Reals) -> bool:
        """Fill `out` with the states after each step of `u`; False where that takes going step by step."""
        self._engine.run(u, states, out)
        return True

    def _checked_input(self, u: Reals, *steps: int) -> Reals:
        """Return an input, or one for each of some steps, as the network's real type, if it fits the state.

        Whether it is finite is looked at where it is used: most kernels do.
        """
        given = np.asarray(u, self.weights.dtype)
        wanted = (*self._state.shape[:-1], *steps, self.weights.inputs)
        if given.shape != wanted:
            raise SpecError(
                f"`u` must have shape {wanted}. Got {given.shape}\nhint: reset(batch=n) for n samples at once"
            )
        return given


def fingerprint(weights: EsnWeights) -> str:
    """Return 16 hex digits that change with everything that shapes the state; another readout keeps them."""
    digest = hashlib.sha256(f"{weights.dtype} {weights.activation} {float(weights.leak).hex()}".encode())
    parts = [weights.w_in, *arrays_of(weights.w_res).values(), weights.bias]
    for part in parts if weights.w_fb is None else [*parts, weights.w_fb]:
        digest.update(f"{part.dtype.str} {part.shape}".encode())
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def finite_input(u: Reals) -> Reals:
    """Return inputs that are finite; raises `SpecError` for others."""
    if not np.all(np.isfinite(u)):
        raise SpecError("`u` must hold finite numbers")
    return u
