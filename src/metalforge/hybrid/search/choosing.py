r"""Phases 2 and 3: among the best candidates, the one that is best on the chip, within a budget; and how it learns on.

A finalist is put on an emulated device with its weights in four bits and its activation on the host, and its readout is
fitted again to the states it has there. Activation bits climb (4, 8, 12, 16: one to four chip rows per step) until

    error_int4 <= (1 + tolerance) error          both NRMSE on validation data

or the budget ends. The finalist with the least error_int4 is chosen. It meets the constraint if it got there, or if
one that got there is no better: losing more from a better start is no reason to take a worse network.

The deployed network may go on learning on the device, from a stream it was not fitted on. Reservoir and readout are
both on the chip then (`hybrid.learning.DeviceNetwork`), the readout in three digits: one digit breaks regression.
Rounded weights want to be small, so the ridge is chosen anew by what the device itself says of the training data, and
what rounding does on average is made good. Recursive least squares then goes on from the training rows as if they had
been the stream's beginning, and new integers are pushed as often as the profile makes worth while.

Reservoirs that do well have states near a constant, their bias, and large weights that take the difference. A rounding
error times that constant is an offset far larger than its effect on what varies; the host knows both, and takes it off
(`centre` of the network).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from metalforge.core import Doubles, Modelled, PlacementError, Reals, SpecError, one_thread, require_positive
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.tasks import Task
from metalforge.hybrid.learning import DeviceNetwork, OnlineTrainer, RecursiveLeastSquares, plan_updates
from metalforge.hybrid.learning.trainer import TrainerStatistics
from metalforge.hybrid.routing.encodings import encoding_of
from metalforge.reservoir import EsnWeights, nrmse
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


READOUT = "W12A16"
"""Precision of the readout on the chip."""
RIDGES = tuple(10.0**k for k in range(-6, 3))
FORGETTING = 0.9995
"""Of recursive least squares: a memory of 2,000 rows, as many as the readout was fitted on."""


class FineTuned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NRMSE of what the device says of held-out series, before and after a stream, and what learning it took."""

    ridge: float
    error_before: float
    error_after: float
    learning: TrainerStatistics


def fine_tune(
    esn: HybridEsn,
    parameters: Parameters,
    training: Task,
    stream: Task,
    held_out: Task,
    profile: DeviceProfile,
    *,
    forgetting: float = FORGETTING,
) -> tuple[FineTuned, EsnWeights]:
    """Return how a stream changed the error on held-out series, and the network with its new readout.

    The series of the stream follow one another, each from rest; its washouts are answered and not learned.
    """
    if not training.each_step:
        raise SpecError("learning goes on step by step: a target for every step is wanted, not one per series")
    with one_thread():  # matrices of a few hundred: BLAS threads would only wait for each other
        features = training.counted(esn.states(training.inputs)).astype(np.float64)
        network = DeviceNetwork(
            esn.weights,
            EmulatedDevice(profile),
            centre=features.mean(axis=0),
            precision=esn.precision or "W4A8",
            readout=READOUT,
            calibration=training.inputs,
        )
        ridge = _start(network, features, parameters, training.labels)
        # States do not depend on the readout: those of the same reservoir, run side by side, serve for both looks.
        unseen = held_out.counted(esn.states(held_out.inputs)).astype(np.float64)
        truth = held_out.labels
        before = nrmse(truth, network.read(unseen))
        trainer = OnlineTrainer(
            network,
            RecursiveLeastSquares(forgetting=forgetting, inverse=_inverse(features, ridge)),
            push_every=plan_updates(profile, network).every,
        )
        for inputs, targets, end in zip(stream.inputs, stream.targets, stream.ends, strict=True):
            network.reset()
            for t, (u, y) in enumerate(zip(inputs[: end + 1], targets, strict=False)):
                trainer.step(u, y, learn=t >= stream.washout)
        trainer.flush()
        done, master = trainer.statistics(), network.master()
        after = nrmse(truth, network.read(unseen))
        network.close()
        record = FineTuned(ridge=ridge, error_before=before, error_after=after, learning=done)
        return record, esn.weights.with_readout(master.w_out, master.out_bias)


def _inverse(features: Doubles, ridge: float) -> Doubles:
    """Return (X^T X + ridge 1)^-1 of rows [x; 1]; `ridge` also keeps it finite where features say nothing."""
    rows = np.hstack([features, np.ones((len(features), 1))])
    values, vectors = np.linalg.eigh(rows.T @ rows)
    return np.asarray((vectors / (np.maximum(values, 0.0) + ridge)) @ vectors.T)


def _start(network: DeviceNetwork, features: Doubles, parameters: Parameters, targets: Reals) -> float:
    """Push the readout whose rounded weights do best on the training data; return its ridge."""
    sums = HeadSums(head_parts(parameters.heads, parameters.units, targets.shape[1]))
    sums.add(features, targets)
    found: list[tuple[float, float]] = []
    for readout in map(sums.readout, RIDGES):
        network.push(readout.w_out, readout.out_bias)
        found.append((nrmse(targets, network.read(features)), readout.ridge))
    best = min(found)[1]
    network.push(sums.readout(best).w_out, sums.readout(best).out_bias)
    return best
