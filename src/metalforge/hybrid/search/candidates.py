r"""What is searched over, the network that a point of it stands for, and its error.

A candidate is a base network of its size and share of connections, scaled:

    W_res = spectral_radius B,   W_in = input_scaling C,   b = bias_scaling d        B of spectral radius 1

so eigenvalues are found once for each base, not once for each candidate. Bases lie on the four-bit grid
(`reservoir.generate`): a chip then holds W_res without any error, whatever its scale.

The error takes states in one native batch, a ridge solve, and the NRMSE on validation series. The first rung looks at a
share of the series only; what passes is given the rest, and nothing is computed twice: series are added to the same
sums. Everything heavy releases the interpreter, so candidates run in threads.

A searched network is held against a reservoir with default settings and a line on lags (`baselines`), on the same
data. Both choose their ridge on the validation part, as the search does, and are scored on the test part.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from metalforge.core import Reals, SpecError, one_thread
from metalforge.hybrid.esn.tasks import Task
from metalforge.reservoir import (
    ACTIVATIONS,
    ActivationName,
    EsnEngine,
    EsnWeights,
    NormalEquations,
    Readout,
    make_esn,
    nrmse,
    rmse,
    scaled,
    select_ridge,
)

from .tasks import SearchTask

HeadPlan: TypeAlias = Literal["shared", "split"]
"""Every head reads all units, or each reads a part of the units of its own: a smaller readout."""


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One candidate: a point of the space."""

    units: int
    spectral_radius: float
    leak: float
    input_scaling: float
    bias_scaling: float
    connectivity: float
    activation: ActivationName
    ridge: float
    heads: HeadPlan = "shared"


class Space(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bounds of a search: choices as tuples, ranges as (low, high). Scalings and ridge are searched by size.

    Sizes are `units`: first, last and step. Few sizes and connectivities mean few bases.
    """

    units: tuple[int, int, int] = (40, 200, 20)
    spectral_radius: tuple[float, float] = (0.2, 1.4)
    leak: tuple[float, float] = (0.1, 1.0)
    input_scaling: tuple[float, float] = (0.003, 2.0)
    bias_scaling: tuple[float, float] = (0.0, 1.0)
    connectivity: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0)
    activation: tuple[ActivationName, ...] = ("tanh", "piecewise_tanh", "sigmoid", "relu")
    ridge: tuple[float, float] = (1e-9, 1e-1)
    heads: tuple[HeadPlan, ...] = ("shared", "split")
    """Searched where the task has several heads."""

    def __post_init__(self) -> None:
        for name in ("spectral_radius", "leak", "input_scaling", "bias_scaling", "ridge"):
            low, high = getattr(self, name)
            if not 0 <= low < high < float("inf") or (low == 0 and name != "bias_scaling"):
                raise SpecError(f"`{name}` must be a range 0 < low < high. Got {low} .. {high}")
        for name in ("connectivity", "activation", "heads"):
            choices = getattr(self, name)
            if not choices or len(set(choices)) != len(choices):
                raise SpecError(f"`{name}` must be one or more different choices. Got {list(choices)}")
        first, last, step = self.units
        if not 2 <= first <= last or step < 1:
            raise SpecError(f"`units` must be first, last and step, from 2 on and rising. Got {list(self.units)}")
        if self.leak[1] > 1 or not all(0 < c <= 1 for c in self.connectivity):
            raise SpecError("leaks end at 1, and connectivities are shares above 0 and at most 1")
        unknown = set(self.activation) - set(ACTIVATIONS)
        if unknown:
            raise SpecError(f"unknown activations {sorted(unknown)}; known: {', '.join(sorted(ACTIVATIONS))}")


@lru_cache(maxsize=256)
def _base(units: int, inputs: int, connectivity: float, seed: int) -> EsnWeights:
    """Return the network of spectral radius 1 that candidates of this size are scaled from."""
    return make_esn(
        units,
        inputs,
        seed=seed,
        spectral_radius=1.0,
        bias_scaling=1.0,
        connectivity=connectivity,
        grid="int4",
        dtype=np.float32,
    )


def build(parameters: Parameters, inputs: int, *, seed: int) -> EsnWeights:
    """Return a candidate's network without a readout, float32; the same arguments give the same network."""
    base = _base(parameters.units, inputs, parameters.connectivity, seed)
    return replace(
        base,
        w_in=base.w_in * np.float32(parameters.input_scaling),
        w_res=scaled(base.w_res, parameters.spectral_radius),
        bias=base.bias * np.float32(parameters.bias_scaling),
        leak=parameters.leak,
        activation=parameters.activation,
    )


RUNGS = (0.25, 1.0)
"""Shares of the training and validation series that each rung has seen."""


def head_parts(plan: HeadPlan, units: int, outputs: int) -> list[tuple[slice, slice]]:
    """Return (units, outputs) of each readout: one of everything, or one per head with a run of units of its own."""
    if plan == "shared" or outputs == 1:
        return [(slice(0, units), slice(0, outputs))]
    ends = np.linspace(0, units, outputs + 1).astype(int)
    return [(slice(int(ends[i]), int(ends[i + 1])), slice(i, i + 1)) for i in range(outputs)]


class HeadSums:
    """The sums of one ridge readout a head part; series are added as they come."""

    def __init__(self, parts: Sequence[tuple[slice, slice]]) -> None:
        self._parts = list(parts)
        self._sums = [NormalEquations(x.stop - x.start, y.stop - y.start) for x, y in self._parts]

    def add(self, features: Reals, targets: Reals) -> None:
        """Add rows of features (rows, units) and targets (rows, outputs)."""
        for sums, (x, y) in zip(self._sums, self._parts, strict=True):
            sums.add(features[:, x], targets[:, y])

    def add_series(self, states: Reals, task: Task, first: int = 0) -> None:
        """Add states (series, steps, units) of a task's series from the first on, where they have targets.

        One at a time: its rows stay in the cache, and all together would be fresh pages from the system every time,
        which takes longer than the sums.
        """
        for i, features in enumerate(states, first):
            self.add(*task.at(i, features))

    def readout(self, ridge: float) -> Readout:
        """Return the readout of all heads; its weights are zero where a head does not read."""
        units, outputs = self._parts[-1][0].stop, self._parts[-1][1].stop
        w_out, out_bias = np.zeros((outputs, units)), np.zeros(outputs)
        for sums, (x, y) in zip(self._sums, self._parts, strict=True):
            (found,) = sums.solve([ridge])
            w_out[y, x], out_bias[y] = found.w_out, found.out_bias
        return Readout(w_out=w_out, out_bias=out_bias, ridge=ridge)


def error_of(truth: Reals, said: Reals) -> float:
    """Return the NRMSE; of targets that do not change in some few series, the error in units of the training part."""
    return nrmse(truth, said) if np.all(np.ptp(truth, axis=0) > 0) else rmse(truth, said)


def score(readout: Callable[[Reals], Reals], states: Reals, task: Task) -> float:
    """Return the NRMSE of a readout on states (series, steps, units) of a task."""
    return error_of(task.labels, readout(task.seen(states)))


@dataclass(eq=False)
class Candidate:
    """One point of the space on its way through the rungs."""

    parameters: Parameters
    task: SearchTask
    seed: int
    errors: list[float] = field(default_factory=list)
    """Validation NRMSE after each rung; infinite where the state left the finite numbers."""
    _seen: list[tuple[Reals, Reals]] = field(default_factory=list)
    """States of each validation series so far that have targets, and these."""

    def climb(self) -> float:
        """Evaluate on the next rung's series and return the error."""
        rung = len(self.errors)
        self.errors.append(self._error(rung))
        return self.errors[-1]

    def finish(self) -> float:
        """Climb the rungs that are left and return the error on all the data."""
        while len(self.errors) < len(RUNGS) and float("inf") not in self.errors:
            self.climb()
        return self.errors[-1]

    def weights(self) -> EsnWeights:
        """Return the network with the readout of everything it has seen."""
        found = self._sums.readout(self.parameters.ridge)
        return self._engine.weights.with_readout(found.w_out, found.out_bias)

    @cached_property
    def _engine(self) -> EsnEngine:
        return EsnEngine(build(self.parameters, self.task.inputs, seed=self.seed), threads=1)

    @cached_property
    def _sums(self) -> HeadSums:
        return HeadSums(head_parts(self.parameters.heads, self.parameters.units, self.task.outputs))

    def _error(self, rung: int) -> float:
        training, validation = self.task.training, self.task.validation
        try:
            rows = _rung(rung, len(training.inputs))
            states = _run(self._engine, training.inputs[rows])
            self._sums.add_series(states, training, rows.start)
            rows = _rung(rung, len(validation.inputs))
            for i, states in enumerate(_run(self._engine, validation.inputs[rows]), rows.start):
                features, wanted = validation.at(i, states)
                self._seen.append((features.copy(), wanted))
            readout = self._sums.readout(self.parameters.ridge)
        except OverflowError:  # relu with a large radius: the kernel refuses what is not finite
            return float("inf")
        truth = np.concatenate([wanted for _, wanted in self._seen])
        return error_of(truth, np.concatenate([readout(states) for states, _ in self._seen]))


_SCRATCH = threading.local()


def _run(engine: EsnEngine, inputs: Reals) -> Reals:
    """Return the states (series, steps, units), in memory that this thread's next call writes over.

    Fresh memory for every candidate would cost as much in page faults as the kernels take.
    """
    shape = (*inputs.shape[:2], engine.units)
    size = shape[0] * shape[1] * shape[2]
    buffer: NDArray[np.float32] | None = getattr(_SCRATCH, "buffer", None)
    if buffer is None or buffer.size < size:
        buffer = _SCRATCH.buffer = np.empty(size, np.float32)
    return engine.run(inputs, out=buffer[:size].reshape(shape))


def _rung(rung: int, series: int) -> slice:
    """Return the series that a rung adds."""
    before = 0 if rung == 0 else round(RUNGS[rung - 1] * series)
    return slice(before, max(before + 1, round(RUNGS[rung] * series)))


RIDGES = tuple(10.0**k for k in range(-8, 3))
UNITS, INPUT_SCALING, BIAS_SCALING = 200, 0.1, 0.1
"""As large as the largest candidate, so that a search is not praised for size."""
LAGS = 30
"""The present input and so many before it: more than the ten steps that NARMA10 remembers."""


class Baselines(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NRMSE on the test part."""

    default_reservoir: float
    """200 units, spectral radius 0.9, leak 1, inputs and bias at 0.1, a tenth of the connections, in float64."""
    linear_on_lags: float
    """Ridge regression on the input now and 30 steps back."""


def lagged(inputs: Reals, lags: int = LAGS) -> Reals:
    """Return (series, steps, inputs * (lags + 1)): each row the input now and at the steps before; zeros before all."""
    series, steps, width = inputs.shape
    out = np.zeros((series, steps, (lags + 1) * width))
    for lag in range(min(lags + 1, steps)):
        out[:, lag:, lag * width : (lag + 1) * width] = inputs[:, : steps - lag]
    return out


def baselines(task: SearchTask, *, seed: int = 1) -> Baselines:
    """Return both on the test part of a task."""
    parts = (task.training, task.validation, task.test)
    with one_thread():  # small matrices: BLAS threads would only wait for each other
        engine = EsnEngine(
            make_esn(UNITS, task.inputs, seed=seed, input_scaling=INPUT_SCALING, bias_scaling=BIAS_SCALING)
        )
        return Baselines(
            default_reservoir=_fitted(parts, [engine.run(part.inputs) for part in parts]),
            linear_on_lags=_fitted(parts, [lagged(part.inputs) for part in parts]),
        )


def _fitted(parts: Sequence[Task], features: Sequence[Reals]) -> float:
    training, validation, (x, y) = [(part.seen(seen), part.labels) for part, seen in zip(parts, features, strict=True)]
    return error_of(y, select_ridge([training], RIDGES, validation=[validation]).readout(x))
