r"""Phase 2: among the best candidates, the one that is best on the chip, within a budget.

A finalist is put on an emulated device with its weights in four bits and its activation on the host, and its readout is
fitted again to the states it has there. Activation bits climb (4, 8, 12, 16: one to four chip rows per step) until

    error_int4 <= (1 + tolerance) error          both NRMSE on validation data

or the budget ends. The finalist with the least error_int4 is chosen. It meets the constraint if it got there, or if
one that got there is no better: losing more from a better start is no reason to take a worse network.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from metalforge.core import Modelled, PlacementError, one_thread, require_positive
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.routing.encodings import encoding_of
from metalforge.reservoir import EsnWeights
from metalforge.substrates import DeviceProfile, EmulatedDevice, programs_cost, shape_seconds

from .candidates import Candidate, HeadSums, Parameters, head_parts, score
from .study import FinishedTrial, StudyResult
from .tasks import SearchTask


class Point(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A candidate in the plane of errors and prices; `error` is the NRMSE on validation data."""

    parameters: Parameters
    precision: str
    error: float
    latency: Modelled
    energy: Modelled


class SearchBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most that a step may take on the device; None is without limit."""

    latency_s: float | None = None
    energy_j: float | None = None

    def __post_init__(self) -> None:
        require_positive(latency_s=self.latency_s, energy_j=self.energy_j)

    def allows(self, latency: Modelled, energy: Modelled) -> bool:
        """Return whether a step of this price is within the budget."""
        return latency.value <= (self.latency_s or float("inf")) and energy.value <= (self.energy_j or float("inf"))


@lru_cache(maxsize=1024)
def price(units: int, inputs: int, precision: str, profile: DeviceProfile) -> tuple[Modelled, Modelled]:
    """Return seconds and joules of a step's product, for a layer of all inputs and units on the device."""
    seconds = Modelled(
        value=shape_seconds(units + inputs, units, encoding_of(precision), 1, profile), unit="s", profile=profile.name
    )
    joules = seconds.value * profile.call.power_w.value
    return seconds, Modelled(value=joules, unit="J", profile=profile.name)


def points(finished: Iterable[FinishedTrial], inputs: int, precision: str, profile: DeviceProfile) -> list[Point]:
    """Return the candidates that saw all the data, priced at one precision."""
    found = []
    for trial in finished:
        if trial.error is not None:
            latency, energy = price(trial.parameters.units, inputs, precision, profile)
            found.append(
                Point(
                    parameters=trial.parameters,
                    precision=precision,
                    error=trial.error,
                    latency=latency,
                    energy=energy,
                )
            )
    return found


def front(candidates: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats or equals in error, latency and energy, the cheapest first.

    Of points that agree in all three the first one stays.
    """
    kept: list[Point] = []
    for point in sorted(candidates, key=lambda p: (p.latency.value, p.energy.value, p.error)):
        if not any(k.error <= point.error and k.energy.value <= point.energy.value for k in kept):
            kept.append(point)
    return kept


INT4_LADDER = ("W4A4", "W4A8", "W4A12", "W4A16")
"""Four-bit weights with activations of one to four nibbles, cheapest first."""
RIDGE_FACTORS = (1.0, 1e2, 1e4)
"""Ridges that the second fit tries, times the candidate's: rounded states may want more."""


class Finalist(Point, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A candidate on the chip: its validation error there beside that in software."""

    error_int4: float
    within_tolerance: bool


class Choice(NamedTuple):
    """What phase 2 decided: the best finalist, its network on an emulated device and in software, and all finalists.

    Each network has the readout that was fitted where it runs.
    """

    best: Finalist
    esn: HybridEsn
    software: EsnWeights
    finalists: tuple[Finalist, ...]

    @property
    def within_tolerance(self) -> bool:
        """Whether the chosen one is within the tolerance, or no worse on the chip than one that is."""
        return any(f.within_tolerance for f in self.finalists)


def finalists(
    study: StudyResult, task: SearchTask, profile: DeviceProfile, budget: SearchBudget, count: int
) -> list[Point]:
    """Return up to `count` candidates to put on the chip: the front of error and price, then the least errors.

    Prices are those of the cheapest precision; raises PlacementError where not one is within the budget.
    """
    study.best  # noqa: B018  raises where nothing was evaluated in full
    priced = points(study.complete, task.inputs, INT4_LADDER[0], profile)
    allowed = [point for point in priced if budget.allows(point.latency, point.energy)]
    if not allowed:
        cheapest = min(priced, key=lambda p: p.latency.value)
        raise PlacementError(
            f"no candidate is within the budget: the cheapest step takes {cheapest.latency} and {cheapest.energy}"
            "\nhint: a larger budget, another profile, or smaller networks in the space"
        )
    # Half of the places go to the front, the least error first: cheaper ones may do as well on the chip.
    edge = front(allowed)[::-1]
    picked = [*edge[: max(1, count // 2)], *sorted(allowed, key=lambda p: p.error)]
    unique: dict[Parameters, Point] = {}
    for point in picked:
        unique.setdefault(point.parameters, point)
    return list(unique.values())[:count]


def on_chip(
    point: Point, reservoir: EsnWeights, task: SearchTask, precision: str, profile: DeviceProfile, tolerance: float
) -> tuple[Finalist, HybridEsn]:
    """Return a candidate on an emulated device of this profile, with its readout fitted to the states there."""
    p, training, validation = point.parameters, task.training, task.validation
    esn = HybridEsn.from_weights(reservoir, calibration=training.inputs).with_hardware_linear(
        EmulatedDevice(profile), precision=precision
    )
    sums = HeadSums(head_parts(p.heads, p.units, task.outputs))
    both = esn.states(np.concatenate([training.inputs, validation.inputs]))  # side by side: half the steps
    fitted_on, states = both[: len(training.inputs)], both[len(training.inputs) :]
    sums.add_series(fitted_on, training)
    readouts = [sums.readout(p.ridge * factor) for factor in RIDGE_FACTORS]
    errors = [score(readout, states, validation) for readout in readouts]
    best = readouts[int(np.argmin(errors))]
    cost = programs_cost(esn.programs.programs, profile)
    assert isinstance(cost.latency, Modelled)
    assert isinstance(cost.energy, Modelled)
    finalist = Finalist(
        parameters=p,
        precision=precision,
        error=point.error,
        error_int4=min(errors),
        latency=cost.latency,
        energy=cost.energy,
        within_tolerance=min(errors) <= (1 + tolerance) * point.error,
    )
    return finalist, esn.with_weights(reservoir.with_readout(best.w_out, best.out_bias))


def choose(
    study: StudyResult,
    task: SearchTask,
    profile: DeviceProfile,
    *,
    seed: int,
    budget: SearchBudget = SearchBudget(),  # noqa: B008  frozen
    tolerance: float = 0.1,
    count: int = 8,
    progress: Callable[[Finalist], None] | None = None,
) -> Choice:
    """Return the candidate to deploy, with all finalists and what they reached.

    Where none is within the tolerance, the choice says so.
    """
    tried: list[tuple[Finalist, HybridEsn, EsnWeights]] = []
    with one_thread():  # matrices of a few hundred: BLAS threads would only wait for each other
        for point in finalists(study, task, profile, budget, count):
            candidate = Candidate(point.parameters, task, seed)
            candidate.finish()
            software = candidate.weights()
            rungs: list[tuple[Finalist, HybridEsn]] = []
            for precision in INT4_LADDER:
                if budget.allows(*price(software.units, task.inputs, precision, profile)):
                    rungs.append(on_chip(point, software, task, precision, profile, tolerance))
                    if rungs[-1][0].within_tolerance:
                        break
            found, esn = min(rungs, key=lambda one: one[0].error_int4)
            tried.append((found, esn, software))
            if progress is not None:
                progress(found)
    best, esn, software = min(tried, key=lambda t: (t[0].error_int4, t[0].latency.value))
    return Choice(best, esn, software, tuple(t[0] for t in tried))
