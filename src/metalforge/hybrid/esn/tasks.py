"""Series with targets, the loss of a network on them, and a readout fitted to its states, on whatever substrate.

Targets of whole numbers are classes, and the loss is the share of wrong ones; that of real targets is the
root-mean-square error over the targets' standard deviation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from metalforge.core import Array, BriefRepr, Reals, SpecError
from metalforge.reservoir import nrmse
from metalforge.reservoir import ridge as ridge_readout

if TYPE_CHECKING:
    from .network import HybridEsn

DEFAULT_RIDGE = 1e-6
"""Where nobody says one: next to nothing."""
MOST_PADDED = 1 << 27
"""Numbers of series that are held side by side, the padding of shorter ones among them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Task(BriefRepr):
    """Series of inputs, each from rest, and what a network should say: at every step, or at the end of each series.

    `inputs` are (series, steps, inputs). Targets of whole numbers are classes, (series,) or (series, steps); real ones
    are (series, outputs) or (series, steps, outputs). `washout` steps at the start of every series are left out of
    targets of steps. `lengths` are the steps that each series has where they differ; what follows them is padding, of
    which nothing is read (`Task.of` makes it).
    """

    inputs: Reals
    targets: Array
    washout: int = 0
    lengths: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, inputs: Sequence[Reals], targets: Array | Sequence[Array], *, washout: int = 0) -> "Task":
        """Return the task of series (steps_i, inputs) of any lengths; targets: one per series, or a list by steps."""
        lengths = np.array([len(series) for series in inputs])
        same = bool(np.all(lengths == lengths[0]))
        if len(lengths) * int(lengths.max()) * int(inputs[0].shape[1]) > MOST_PADDED:
            raise SpecError(
                f"{len(lengths)} series of up to {lengths.max()} steps are too many to be held side by side"
                "\nhint: cut the longest ones"
            )
        return cls(
            inputs=_padded(inputs, lengths),
            targets=targets if isinstance(targets, np.ndarray) else _padded(targets, lengths),
            washout=washout,
            lengths=None if same else lengths,
        )

    def __post_init__(self) -> None:
        x, y = self.inputs, self.targets
        if x.ndim != 3 or 0 in x.shape or not np.all(np.isfinite(x)):
            raise SpecError(f"`inputs` must be finite, (series, steps, inputs), not empty. Got shape {x.shape}")
        ends = self.ends
        if ends.shape != x.shape[:1] or ends.min() < 0 or ends.max() >= x.shape[1]:
            raise SpecError(f"`lengths` must be {len(x)} numbers of 1 to {x.shape[1]} steps. Got {self.lengths}")
        shape = x.shape[:2] if self.each_step else x.shape[:1]
        if self.classes:
            if y.shape != shape or y.min() < 0:
                raise SpecError(
                    f"classes must be whole numbers from 0 on, one for each of {len(x)} series or for every step. "
                    f"Got shape {y.shape}"
                )
        elif y.ndim not in (2, 3) or y.shape[:-1] != shape or not np.all(np.isfinite(y)):
            raise SpecError(
                f"`targets` must be finite, (series, steps, outputs) as the inputs or (series, outputs). Got {y.shape}"
            )
        if not 0 <= self.washout <= ends.min():
            raise SpecError(f"`washout` must be shorter than the {ends.min() + 1} steps. Got {self.washout}")

    @property
    def classes(self) -> int:
        """Number of classes; 0 for real targets."""
        return int(self.targets.max()) + 1 if self.targets.dtype.kind in "iu" else 0

    @property
    def each_step(self) -> bool:
        """Whether targets are of every step, not of whole series."""
        return self.targets.ndim == (2 if self.targets.dtype.kind in "iu" else 3)

    @property
    def ends(self) -> NDArray[np.int64]:
        """The last step of each series."""
        series, steps = self.inputs.shape[:2]
        return np.full(series, steps - 1) if self.lengths is None else self.lengths - 1

    def part(self, series: slice | NDArray[np.int64]) -> "Task":
        """Return some of the series, by their numbers."""
        lengths = None if self.lengths is None else self.lengths[series]
        return replace(self, inputs=self.inputs[series], targets=self.targets[series], lengths=lengths)

    def counted(self, values: Reals) -> Reals:
        """Return (series, steps, n) as rows (rows, n) without each series' washout and padding."""
        return values[self._counts()]

    def seen(self, values: Reals) -> Reals:
        """Return of (series, steps, n) the rows that have a target: all that count, or the last of each series."""
        return self.counted(values) if self.each_step else values[np.arange(len(values)), self.ends]

    def at(self, i: int, values: Reals) -> tuple[Reals, Array]:
        """Return of one series (steps, n) the rows that have a target, and these."""
        end = int(self.ends[i]) + 1
        if self.each_step:
            return values[self.washout : end], self.targets[i, self.washout : end]
        return values[end - 1 : end], self.targets[i : i + 1]

    @property
    def labels(self) -> Array:
        """Targets a row of `seen`: (rows,) classes or (rows, outputs) reals."""
        return self.targets[self._counts()] if self.each_step else self.targets

    @property
    def groups(self) -> NDArray[np.int64]:
        """The series that each row of `seen` is of."""
        series = np.arange(len(self.inputs))
        return np.repeat(series, self._counts().sum(axis=1)) if self.each_step else series

    def _counts(self) -> NDArray[np.bool_]:
        step = np.arange(self.inputs.shape[1])
        return (step >= self.washout) & (step <= self.ends[:, np.newaxis])


def _padded(series: Sequence[Array], lengths: NDArray[np.int64]) -> Array:
    """Return (series, steps, ...) with zeros after the end of each."""
    for i, (one, length) in enumerate(zip(series, lengths, strict=False)):
        if len(one) != length:
            raise SpecError(f"series {i} has {length} steps and {len(one)} targets")
    if len(series) != len(lengths):
        raise SpecError(f"targets are wanted for {len(lengths)} series. Got {len(series)}")
    first = np.asarray(series[0])
    whole = np.zeros((len(series), int(lengths.max()), *first.shape[1:]), first.dtype)
    for i, one in enumerate(series):
        whole[i, : len(one)] = one
    return whole


def features_of(esn: "HybridEsn", task: Task) -> Reals:
    """Return the rows that a readout sees: last states for targets of series, all that count for those of steps."""
    states = task.seen(esn.states(task.inputs))
    return np.concatenate([states, task.seen(task.inputs)], axis=1) if esn.weights.passthrough else states


def _wanted(task: Task) -> Reals:
    """Return targets as rows: one-hot for classes."""
    return np.asarray(np.eye(task.classes)[task.labels]) if task.classes else task.labels


def refit(esn: "HybridEsn", task: Task, *, ridge: float | None = None) -> "HybridEsn":
    """Return the network with a readout fitted to its own states on this task: one ridge solve.

    Without `ridge` it is the one that its readout was fitted with, and 1e-6 where that is not known.
    """
    own = esn.weights.ridge if ridge is None else ridge
    found = ridge_readout(features_of(esn, task), _wanted(task), DEFAULT_RIDGE if own is None else own)
    return esn.with_weights(esn.weights.with_readout(found.w_out, found.out_bias, ridge=found.ridge))


def outputs(esn: "HybridEsn", task: Task, *, features: Reals | None = None) -> Reals:
    """Return the readout of the network's states on this task, one row a row of `features_of`."""
    weights = esn.weights
    if weights.w_out is None or weights.out_bias is None:
        raise SpecError("this network has no readout\nhint: refit(esn, task)")
    seen = features_of(esn, task) if features is None else features
    return np.asarray(seen @ weights.w_out.T + weights.out_bias)


def loss(esn: "HybridEsn", task: Task) -> float:
    """Return the share of wrong classes, or the NRMSE."""
    found = outputs(esn, task)
    if task.classes:
        return float(np.mean(np.argmax(found, axis=1) != task.labels))
    return float(nrmse(_wanted(task), found))
