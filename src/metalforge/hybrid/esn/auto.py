"""The cheapest precision that is good enough, found by climbing the ladder on data.

gap = loss of the hybrid network - loss of the same network in software, both on the validation task; the climb ends
at the first rung whose gap is within the tolerance.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .tasks import Task, loss, refit

if TYPE_CHECKING:
    from .network import HybridEsn

__all__ = ["PrecisionChoice", "Rung", "climb"]


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
