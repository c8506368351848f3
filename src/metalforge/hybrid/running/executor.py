r"""A plan, run: one call in, every op on the side that the plan gave it, named outputs out.

A call is a transaction. States, weights and counts change when all of it has succeeded; a device that fails in the
middle leaves them as they were, and the whole call is made again in software from the same state. Weight updates take
effect when a call ends, as in `SoftwareModel`: the float master is changed, and pushed where the device holds it.
"""

from collections.abc import Mapping
from contextlib import suppress
from time import perf_counter

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from metalforge.core import Array, Closing, Measured, MetalforgeError, Modelled, SpecError, find
from metalforge.hybrid.model.inputs import GraphValues, Outputs, check_inputs
from metalforge.hybrid.model.opening import Model
from metalforge.hybrid.model.ops import FullyConnectedOp, RecurrentSequence, RecurrentStep
from metalforge.hybrid.model.software import GraphCall, SoftwareModel, kept_state
from metalforge.hybrid.routing.candidates import DEFAULT_PROFILE
from metalforge.hybrid.routing.jobs import ChainJob, DeviceJob, LinearJob
from metalforge.hybrid.routing.plan import Plan
from metalforge.hybrid.routing.ranges import Examples
from metalforge.hybrid.routing.router import OperationRouter
from metalforge.reservoir import leaky_step
from metalforge.substrates import DevicePrograms, EmulatedDevice, NpuDevice, NpuError

from .device_matrix import DeviceGuard, DeviceMatrix, OnFailure


class ExecutorStatistics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an executor did. Host time was measured, device time and energy were modelled; they are never added."""

    calls: int
    samples: int
    host: Measured
    device_calls: Measured
    """Wall time inside the device's methods; of an emulator, the time of emulating."""
    device_busy: Modelled | None
    """What the device's profile says its work for this executor took."""
    device_energy: Modelled | None
    bytes_to_device: int
    bytes_to_host: int
    retries: int
    fallbacks: int
    """Calls that software took over."""
    pushes: int
    bytes_pushed: int
    clipped: int
    """Numbers beyond the range they were planned for."""


class HybridExecutor(Closing):
    """Runs a plan. Without a `device` it makes an emulated one of the plan's profile, and closes it at the end.

    A model in place of a plan (whatever `OperationRouter.plan` takes) is planned here: all that the NPU can do goes
    there. `calibration` shows how large its values get; an op of which that is not known stays in software, and
    `print(executor.plan)` tells.

    `on_device_failure`: a time-out is tried once more; after a second one, or when the device is gone, `fallback`
    warns once and goes on in software, `raise` lets the error through with everything as before the call.
    """

    def __init__(
        self,
        plan: Plan | Model,
        device: NpuDevice | None = None,
        *,
        calibration: Examples | None = None,
        on_device_failure: OnFailure = "fallback",
    ) -> None:
        if not isinstance(plan, Plan):
            router = OperationRouter(objective="hw_only", profile=getattr(device, "profile", DEFAULT_PROFILE))
            plan = router.plan(plan, calibration=calibration)
        elif calibration is not None:
            raise SpecError("a plan has its ranges: `calibration` is for a model that is not planned yet")
        self.plan = plan
        self.graph = plan.graph
        self._guard = DeviceGuard(on_device_failure)
        self._own = EmulatedDevice(plan.profile) if device is None else None
        self.device: NpuDevice = self._own or device  # type: ignore[assignment]  # one of them is there
        self._programs = DevicePrograms(self.device)
        self._matrices: dict[str, list[DeviceMatrix]] = {}  # by a job's first node: its blocks, one below the other
        self._chains: dict[str, str] = {}
        self._clipped = 0
        self._load()
        self._job_of = {name: job for job in plan.jobs for name in job.nodes}
        self._io = GraphValues(plan.graph)
        self._nodes = {node.name: node for node in plan.graph.nodes}
        self._model = SoftwareModel(plan.graph)
        self._touched: set[str] = set()
        self._samples = self._pushes = self._bytes_pushed = 0
        self._host_s = 0.0
        self._stale = self._closed = False

    # Calls.

    def forward(self, x: ArrayLike | Mapping[str, ArrayLike]) -> Outputs:
        """Return the outputs for a batch, or for one sample without the batch axis; for graphs without state."""
        if self.graph.stateful:
            raise SpecError(f"graph `{self.graph.name}` keeps a state\nhint: step(x) for one time step, run(sequence)")
        return self.step(x)

    def step(self, x: ArrayLike | Mapping[str, ArrayLike]) -> Outputs:
        """Return the outputs of one time step, for a batch or one sample; the state moves on."""
        inputs, single = self._io.batched(self._io.named(x))
        outputs = self._call(inputs)
        return self._io.shown(self._io.single(outputs) if single else outputs)

    def run(self, sequence: ArrayLike | Mapping[str, ArrayLike]) -> Outputs:
        """Return the outputs of a sequence (T, ...), or of several (B, T, ...) side by side, from the present state."""
        steps, several = self._io.sequences(self._io.named(sequence))
        made = [self._call(inputs) for inputs in steps]
        outputs = made if several else [self._io.single(step) for step in made]
        return self._io.shown(self._io.over_time(outputs, batched=several))

    def reset(self) -> None:
        """Bring every state to rest; weights stay as they are."""
        self._model.state = {}

    # State and weights.

    @property
    def state(self) -> dict[str, Array]:
        """Copies of the states by node, a row per sample; a node at rest has none."""
        return {name: value.copy() for name, value in self._model.state.items()}

    def weights(self, name: str) -> Array:
        """Return a copy of the present weights of a fully connected node: the float master, not what the chip holds."""
        return find(f"fully connected op of graph {self.graph.name}", name, self._model.weights).copy()

    def set_weights(self, name: str, matrix: ArrayLike) -> None:
        """Replace the weights of a fully connected node, and push them where the device holds it."""
        old = self.weights(name)
        new = np.array(matrix, self.graph.dtype)
        if new.shape != old.shape or not np.all(np.isfinite(new)):
            raise SpecError(f"the weights of `{name}` must be finite and of shape {old.shape}. Got {new.shape}")
        changed = self._model.weights | {name: new}
        self._push({name}, changed)
        self._model.weights = changed

    # The device.

    def reconnect(self) -> None:
        """Reset the device, put the programs on it again with the present weights, and use it again.

        A reset takes the programs of other users off too; they are loaded again when they are called.
        """
        self._programs.reset_device()
        self._restore()
        self._guard.lost = False

    def holds(self, job: LinearJob) -> bool:
        """Return whether the device holds the integers of a job's present weights, by reading them back."""
        return all(matrix.verify() for matrix in self._matrices[job.nodes[0]])

    def statistics(self) -> ExecutorStatistics:
        """Return what was done so far."""
        programs, name = self._programs, type(self.device).__name__
        spent = programs.spent()
        return ExecutorStatistics(
            calls=self._model.calls,
            samples=self._samples,
            host=Measured(value=self._host_s, unit="s", how="perf_counter around calls, less the device's methods"),
            device_calls=Measured(value=programs.seconds, unit="s", how=f"perf_counter around methods of {name}"),
            device_busy=spent.busy,
            device_energy=spent.energy,
            bytes_to_device=programs.bytes_in,
            bytes_to_host=programs.bytes_out,
            retries=self._guard.retries,
            fallbacks=self._guard.fallbacks,
            pushes=self._pushes,
            bytes_pushed=self._bytes_pushed,
            clipped=self._clipped,
        )

    def close(self) -> None:
        """Take the programs off the device; a device that was made here is closed too."""
        if not self._closed:
            self._closed = True
            self._unload()
            if self._own is not None:
                self._own.close()

    # One call.

    def _call(self, inputs: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Return the outputs of one call, and let what it changed take effect."""
        if self._closed:
            raise SpecError("the executor is closed\nhint: make another one from the plan")
        begin, device_before = perf_counter(), self._programs.seconds
        values = check_inputs(self.graph, inputs)
        samples = self._io.samples(values)
        if self._stale and not self._guard.lost:
            self._restore()
        made = self._guard.call(
            lambda: self._evaluate(values, on_device=True), lambda: self._evaluate(values, on_device=False)
        )
        changed = {name for name, new in made.weights.items() if new is not self._model.weights[name]}
        self._push(changed, made.weights)
        outputs = self._model.accept(made)
        self._samples += samples
        self._host_s += perf_counter() - begin - (self._programs.seconds - device_before)
        return outputs

    def _evaluate(self, inputs: Mapping[str, Array], *, on_device: bool) -> GraphCall:
        """Return what every node makes, from the present state and weights."""
        made = GraphCall(self._model, inputs)
        done: set[tuple[str, ...]] = set()
        for node in self.graph.nodes:
            job = self._job_of.get(node.name) if on_device else None
            if job is None:
                made.compute(node)
            elif job.nodes not in done:
                self._on_device(job, made)
                done.add(job.nodes)
        return made

    def _infer(self, job: DeviceJob, x: Array) -> Array:
        """Return y (rows, outputs) of a job for x (rows, inputs), both real."""
        self._clipped += int(np.count_nonzero(np.abs(x) > job.ranges))
        if isinstance(job, ChainJob):
            return job.decode(self._programs.infer(self._chains[job.nodes[0]], job.encode(x)))
        parts = [matrix(x) for matrix in self._matrices[job.nodes[0]]]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _on_device(self, job: DeviceJob, made: GraphCall) -> None:
        """Run a job and the host's share of it: bias, activation, leak."""
        node = self._nodes[job.nodes[0]]
        x = made.values[node.inputs[0]]
        op = self._model.ops[node.name]
        if isinstance(op, RecurrentSequence):
            inputs = [made.values[name] for name in node.inputs]
            results = op.steps(inputs, lambda u, s: self._recurrent(job, op, u, s))
            made.values.update(zip(node.outputs, results, strict=True))
            return
        if isinstance(op, RecurrentStep):
            found = self._recurrent(job, op, x, made.states.get(node.name))
            made.states[node.name] = made.values[node.outputs[0]] = found
            return
        y = self._infer(job, x.reshape(-1, x.shape[-1]))
        lead = x.shape[:-1]
        # A chain gives what its last node does.
        spans = job.spans if isinstance(job, LinearJob) else {job.nodes[-1]: slice(None)}
        for name, rows in spans.items():
            layer, part = self._model.ops[name], y[:, rows]
            if isinstance(job, LinearJob) and isinstance(layer, FullyConnectedOp) and layer.bias is not None:
                part = part + layer.bias
            made.values[self._nodes[name].outputs[0]] = part.astype(self.graph.dtype).reshape(*lead, -1)

    def _recurrent(self, job: DeviceJob, op: RecurrentStep, u: Array, state: Array | None) -> Array:
        """Return s' = (1 - a) s + a f([W_in | W_res] [u; s] + b), the product on the device."""
        w = op.weights
        s = kept_state(state, (len(u), w.units), u.dtype)
        pre = (self._infer(job, np.concatenate([u, s], axis=1)) + w.bias).astype(u.dtype)
        return leaky_step(s, pre, w.activation, u.dtype.type(w.leak))

    # Programs and weights on the device.

    def _load(self) -> None:
        """Put the programs of all jobs on the device."""
        name = self.graph.name
        try:
            for job in self.plan.jobs:
                if isinstance(job, ChainJob):
                    self._chains[job.nodes[0]] = self._programs.add(f"{name}/{job.name}", *job.programs)
                elif isinstance(job, LinearJob):
                    self._matrices[job.nodes[0]] = [DeviceMatrix(block, self._programs, name) for block in job.blocks]
        except NpuError:
            self._unload()
            raise

    def _unload(self) -> None:
        """Take the programs off the device; one that is gone has none."""
        with suppress(NpuError):
            self._programs.close()

    def _push_job(self, job: LinearJob, weights: Mapping[str, Array]) -> int:
        """Give a job the new weights of its nodes; return the bytes that went over."""
        matrix = np.concatenate([weights[name] for name in job.spans])
        blocks = zip(self._matrices[job.nodes[0]], job.rows, strict=True)
        return sum(block.push(matrix[rows]).bytes for block, rows in blocks)

    def _push(self, changed: set[str], weights: Mapping[str, Array]) -> None:
        """Send new weights of nodes to the jobs that hold them."""
        jobs = {job.nodes[0]: job for name in changed if isinstance(job := self._job_of.get(name), LinearJob)}
        if not jobs or self._guard.lost:
            return
        self._touched |= set(jobs)

        def send() -> int:
            return sum(self._push_job(job, weights) for job in jobs.values())

        try:
            self._bytes_pushed += self._guard.call(send, lambda: 0)
        except MetalforgeError:
            self._stale = True  # some of it may have arrived
            raise
        if not self._guard.lost:
            self._pushes += len(jobs)

    def _restore(self) -> None:
        """Put programs with the present weights on the device. Jobs whose weights never changed keep their integers."""
        self._programs.reload()
        for job in self.plan.jobs:
            if isinstance(job, LinearJob) and job.nodes[0] in self._touched:
                self._push_job(job, self._model.weights)
        self._stale = False
