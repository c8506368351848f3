"""Series with targets, the loss of a network on them, and a readout fitted to its states, on whatever substrate.

Targets of whole numbers are classes, one a series, read from the last state; the loss is the share of wrong ones. Real
targets belong to every step; the loss is the root-mean-square error over the targets' standard deviation.

`climb` finds the cheapest precision that is good enough:
gap = loss of the hybrid network - loss of the same network in software, both on the validation task; the climb ends
at the first rung whose gap is within the tolerance.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from metalforge.core.arrays import Array, Reals
from metalforge.core.brief import Brief
from metalforge.core.errors import SpecError
from metalforge.reservoir.metrics import nrmse
from metalforge.reservoir.readout import ridge as ridge_readout

if TYPE_CHECKING:
    from .network import HybridEsn


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Task(Brief):
    """Inputs (series, steps, inputs), each from rest; classes (series,) or targets (series, steps, outputs).

    `washout` steps at the start of every series are left out of real targets.
    """

    inputs: Reals
    targets: Array
    washout: int = 0

    def __post_init__(self) -> None:
        x, y = self.inputs, self.targets
        if x.ndim != 3 or 0 in x.shape or not np.all(np.isfinite(x)):
            raise SpecError(f"`inputs` must be finite, (series, steps, inputs), not empty. Got shape {x.shape}")
        if self.classes:
            if y.shape != x.shape[:1] or y.min() < 0:
                raise SpecError(f"classes must be {len(x)} whole numbers from 0 on. Got shape {y.shape}")
        elif y.ndim != 3 or y.shape[:2] != x.shape[:2] or not np.all(np.isfinite(y)):
            raise SpecError(f"`targets` must be finite, (series, steps, outputs) as the inputs. Got shape {y.shape}")
        if not 0 <= self.washout < x.shape[1]:
            raise SpecError(f"`washout` must be shorter than the {x.shape[1]} steps. Got {self.washout}")

    @property
    def classes(self) -> int:
        """Number of classes; 0 for real targets."""
        return int(self.targets.max()) + 1 if self.targets.dtype.kind in "iu" else 0

    def counted(self, values: Reals) -> Reals:
        """Return (series, steps, n) as rows (rows, n) without each series' washout."""
        return values[:, self.washout :].reshape(-1, values.shape[2])


def features_of(esn: "HybridEsn", task: Task) -> Reals:
    """Return the rows that a readout sees: last states for classes, all states after the washout for real targets."""
    states = esn.states(task.inputs)
    if task.classes:
        states, u = states[:, -1], task.inputs[:, -1]
    else:
        states, u = task.counted(states), task.counted(task.inputs)
    return np.concatenate([states, u], axis=1) if esn.weights.passthrough else states


def _wanted(task: Task) -> Reals:
    """Return targets as rows: one-hot for classes."""
    if task.classes:
        return np.asarray(np.eye(task.classes)[task.targets])
    return task.counted(task.targets)


def refit(esn: "HybridEsn", task: Task, *, ridge: float = 1e-6) -> "HybridEsn":
    """Return the network with a readout fitted to its own states on this task: one ridge solve."""
    found = ridge_readout(features_of(esn, task), _wanted(task), ridge)
    return esn.with_weights(esn.weights.with_readout(found.w_out, found.out_bias))


def outputs(esn: "HybridEsn", task: Task, *, features: Reals | None = None) -> Reals:
    """Return the readout of the network's states on this task, one row a row of `features_of`."""
    weights = esn.weights
    if weights.w_out is None or weights.out_bias is None:
        raise SpecError("this network has no readout\nhint: refit(esn, task), or give `training`")
    seen = features_of(esn, task) if features is None else features
    return np.asarray(seen @ weights.w_out.T + weights.out_bias)


def loss(esn: "HybridEsn", task: Task) -> float:
    """Return the share of wrong classes, or the NRMSE."""
    found = outputs(esn, task)
    if task.classes:
        return float(np.mean(np.argmax(found, axis=1) != task.targets))
    return float(nrmse(_wanted(task), found))


@dataclass(frozen=True, slots=True)
class Rung:
    """One precision that was tried."""

    precision: str
    rows_per_step: int
    loss: float
    gap: float


@dataclass(frozen=True, slots=True)
class PrecisionChoice:
    """What a climb found: the rungs in the order they were tried, and whether the last is within the tolerance."""

    rungs: tuple[Rung, ...]
    reference: float
    """Loss of the network in software."""
    tolerance: float

    @property
    def precision(self) -> str:
        """The precision that was chosen."""
        return self.rungs[-1].precision

    @property
    def reached(self) -> bool:
        """Whether its gap is within the tolerance."""
        return self.rungs[-1].gap <= self.tolerance

    def __str__(self) -> str:
        """Return one line a rung."""
        lines = [f"software: loss {self.reference:.4f}, tolerance {self.tolerance:g}"]
        lines += [
            f"{r.precision}: loss {r.loss:.4f}, gap {r.gap:+.4f}, {r.rows_per_step} chip rows per step"
            for r in self.rungs
        ]
        return "\n".join([*lines, f"chosen: {self.precision}" + ("" if self.reached else ", above the tolerance")])


def climb(
    software: "HybridEsn",
    build: Callable[[str], "HybridEsn"],
    ladder: tuple[str, ...],
    validation: Task,
    *,
    tolerance: float,
    training: Task | None = None,
    ridge: float = 1e-6,
) -> tuple["HybridEsn", PrecisionChoice]:
    """Return the first network of the ladder that is within `tolerance` of software, or the last, and the report.

    With `training`, each is compared after a readout of its own was fitted.
    """
    if training is not None and software.weights.w_out is None:
        software = refit(software, training, ridge=ridge)
    reference = loss(software, validation)
    rungs: list[Rung] = []
    for precision in ladder:
        esn = build(precision)
        if training is not None:
            esn = refit(esn, training, ridge=ridge)
        value = loss(esn, validation)
        rows = esn.path.rows_per_step if esn.path else 0
        rungs.append(Rung(precision, rows, value, value - reference))
        if value - reference <= tolerance or precision == ladder[-1]:
            break
        esn.close()
    return esn, PrecisionChoice(tuple(rungs), reference, tolerance)
