r"""A reservoir in chunks of rows, with one `step` for its user: every chunk computes, then the state is gathered.

    s' = gather over chunks R of  (1 - a) s_R + a f(W_in,R u + W_res,R s + b_R)

All chunks read the same s, so they may run anywhere and in any order. In software alone a step gives the bits of the
unchunked `Engine`; on a device alone those of an unchunked `HybridEsn` of the same precision.

In software the rows are a network of their own whose inputs are [u; s] and which has no recurrent weights. The kernels
add bias, inputs and states of a unit in the order of their numbers, so that sum has the order, and the bits, that it
has in the whole network. A sparse matrix keeps its form: the network then has all units, and weights for these rows
only; zeros that are not stored change no sum.

On a device a row's integers and scale depend on that row alone, and joining integers is exact. So rows give the same
potentials in whatever program they are, and a network in chunks is one `DeviceMatrix` for each.
"""

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack

from metalforge.core.arrays import Doubles, Reals
from metalforge.core.errors import SpecError
from metalforge.core.quantities import Measured, Modelled
from metalforge.hybrid.esn.network import CarriedState, finite_input
from metalforge.hybrid.running.device_matrix import DeviceMatrix
from metalforge.hybrid.running.exact_steps import ExactSteps
from metalforge.hybrid.running.failure import DeviceGuard, OnFailure
from metalforge.reservoir.activations import leaky_step
from metalforge.reservoir.engine import Affine, Engine
from metalforge.reservoir.sparse import BlockSparse, to_dense
from metalforge.reservoir.weights import EsnWeights
from metalforge.substrates.npu.device import NpuDevice
from metalforge.substrates.npu.residency import DevicePrograms

from .plan import Chunk, ChunkPlan, plan_chunks


class ChunkPart:
    """One chunk at work: its rows on the device, in software, or in software since the device failed."""

    def __init__(self, weights: EsnWeights, chunk: Chunk, programs: DevicePrograms | None, policy: OnFailure) -> None:
        self.chunk, self.guard = chunk, DeviceGuard(policy)
        self.span = slice(chunk.rows.start, chunk.rows.stop)
        self.matrix: DeviceMatrix | None = None
        if chunk.compiled is not None and programs is not None:
            self.matrix = DeviceMatrix(chunk.compiled, programs, chunk.name)
        self._weights = weights

    def product(self, lines: Reals, *, backwards: bool) -> Doubles | None:
        """Return pre-activations (batch, rows) from the device; None where these rows are the host's."""
        matrix = self.matrix
        return None if matrix is None else self.guard.call(lambda: matrix(lines, backwards=backwards), lambda: None)

    def in_software(self, u: Reals, s: Reals) -> Reals:
        """Return new states (batch, rows) for inputs and states of all units: the bits of the whole network."""
        if not isinstance(self._weights.w_res, np.ndarray):
            return self._engine.step(s, u)[:, self.span]
        return self._engine.step(np.ascontiguousarray(s[:, self.span]), np.concatenate([u, s], axis=1))

    @cached_property
    def _engine(self) -> Engine:
        return Engine(software_weights(self._weights, self.chunk.rows))


def software_weights(weights: EsnWeights, rows: range) -> EsnWeights:
    """Return the network of some rows: inputs [u; s] and no recurrence, or all units with these rows' weights."""
    span, w_res = slice(rows.start, rows.stop), weights.w_res
    bare = replace(weights, w_out=None, out_bias=None, heads=None, features=None)
    if isinstance(w_res, np.ndarray):
        w_in = np.hstack([weights.w_driven[span], w_res[span]])
        nothing = csr_array((len(rows), len(rows)), dtype=weights.dtype)
        return replace(bare, w_in=w_in, w_res=nothing, bias=weights.bias[span], w_fb=None)
    kept = csr_array(to_dense(w_res) if isinstance(w_res, BlockSparse) else w_res, copy=True)
    kept.sum_duplicates()
    above, below = (csr_array((n, weights.units), dtype=weights.dtype) for n in (rows.start, weights.units - rows.stop))
    own = vstack([above, kept[span], below], format="csr")
    return replace(bare, w_res=own)


class ChunkStatistics(NamedTuple):
    """What a network did since it was made: host time measured, device time modelled, never added up."""

    steps: int
    """Steps of all samples together."""
    host: Measured
    device: Modelled | None
    """Seconds the device would have been busy, loads included; None without a device or a model of it."""
    energy: Modelled | None
    loads: int
    reloads: int
    evictions: int
    fallbacks: dict[str, int]
    """Steps that software took over, by chunk."""


class ChunkedEsn(CarriedState):
    """A network whose rows are where a plan put them. Its state is (units,) or, after ``reset(batch=n)``, (n, units).

    A device that fails is survived chunk by chunk: the chunk's rows are computed again in software from the state
    before the step, and stay there (`on_device_failure="fallback"`); or the error comes through and nothing has
    changed ("raise").
    """

    def __init__(
        self,
        weights: EsnWeights,
        plan: ChunkPlan,
        device: NpuDevice | None = None,
        *,
        on_device_failure: OnFailure = "fallback",
    ) -> None:
        if plan.units != weights.units:
            raise SpecError(f"the plan is for {plan.units} units, the network has {weights.units}")
        if device is None and plan.programs:
            raise SpecError(
                f"the plan puts {plan.device_units} rows on a device: give `device`"
                "\nhint: EmulatedDevice(plan.profile), or plan_chunks(..., device_units=0)"
            )
        super().__init__(weights, None if device is None else DevicePrograms(device, by_turns=True))
        self.plan = plan
        self._on_host = Affine(weights.w_driven.astype(np.float64)) if plan.inputs == "host" else None
        self._parts = [ChunkPart(weights, chunk, self._programs, on_device_failure) for chunk in plan.chunks]
        matrices = [part.matrix for part in self._parts if part.matrix is not None]
        self._exact: ExactSteps | None = None
        if len(matrices) == len(self._parts):
            self._exact = ExactSteps(weights, matrices, on_host=self._on_host is not None, by_turns=True)
        self._passes = 0

    @classmethod
    def from_weights(
        cls,
        weights: EsnWeights,
        device: NpuDevice | None = None,
        *,
        on_device_failure: OnFailure = "fallback",
        **planning: Any,
    ) -> "ChunkedEsn":
        """Return the network by a plan of its own; `planning` goes to `plan_chunks`. Without a device: in software."""
        if device is None:
            planning.setdefault("device_units", 0)
        elif "profile" not in planning and hasattr(device, "profile"):
            planning["profile"] = device.profile
        plan = plan_chunks(weights, **planning)
        return cls(weights, plan, device, on_device_failure=on_device_failure)

    def statistics(self) -> ChunkStatistics:
        """Return counts, measured host time and modelled device time since the network was made."""
        programs, (device, energy) = self._programs, self._spent()
        return ChunkStatistics(
            steps=self._steps,
            host=self._host(),
            device=device,
            energy=energy,
            loads=programs.loads if programs else 0,
            reloads=programs.reloads if programs else 0,
            evictions=programs.evictions if programs else 0,
            fallbacks={part.chunk.name: part.guard.fallbacks for part in self._parts if part.guard.fallbacks},
        )

    def _next(self, rows: Reals, states: Reals) -> Reals:
        """Return the next state of all units."""
        return self._gathered(np.atleast_2d(finite_input(rows)), np.atleast_2d(states)).reshape(states.shape)

    def _many(self, u: Reals, states: Reals, out: Reals) -> bool:
        if self._exact is None or any(part.guard.lost for part in self._parts):
            return False
        batch, start = (u, states) if u.ndim == 3 else (u[np.newaxis], states[np.newaxis])
        found = self._exact.run(
            batch, start, np.empty((*batch.shape[:2], states.shape[-1]), out.dtype), backwards=self._passes % 2 == 1
        )
        if found is None:
            return False
        out[...] = found.reshape(out.shape)
        self._passes += batch.shape[1]
        return True

    def _gathered(self, rows: Reals, states: Reals) -> Reals:
        """Return the next state, from all chunks: rows of samples."""
        backwards = self._passes % 2 == 1  # by turns, so that programs that share the device are evicted least
        lines = states if self._on_host is not None else np.concatenate([rows, states], axis=1)
        pre, hosts = np.zeros(states.shape), []
        for part in reversed(self._parts) if backwards else self._parts:
            found = part.product(lines, backwards=backwards)
            if found is None:
                hosts.append(part)
            else:
                pre[:, part.span] = found
        new = np.empty_like(states)
        if len(hosts) < len(self._parts):
            w, full = self.weights, pre if self._on_host is None else pre + self._on_host(rows)
            new = leaky_step(states, full + w.bias, w.activation, w.leak)
        for part in hosts:
            new[:, part.span] = part.in_software(rows, states)
        self._passes += 1
        return new
