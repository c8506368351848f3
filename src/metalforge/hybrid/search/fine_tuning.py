r"""Phase 3: the deployed network goes on learning on the device, from a stream it was not fitted on.

Reservoir and readout are both on the chip (`hybrid.learning.DeviceNetwork`), the readout in three digits: one digit
breaks regression. Rounded weights want to be small, so the ridge is chosen anew by what the device itself says of the
training data, and what rounding does on average is made good. Recursive least squares then goes on from the
training rows as if they had been the stream's beginning, and new integers are pushed as often as the profile makes
worth while.

Reservoirs that do well have states near a constant, their bias, and large weights that take the difference. A rounding
error times that constant is an offset far larger than its effect on what varies; the host knows both, and takes it off
(`centre` of the network).
"""

import msgspec
import numpy as np

from metalforge.core import Doubles, Reals, SpecError, one_thread
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.hybrid.esn.tasks import Task
from metalforge.hybrid.learning import DeviceNetwork, OnlineTrainer, RecursiveLeastSquares, plan_updates
from metalforge.hybrid.learning.trainer import TrainerStatistics
from metalforge.reservoir import EsnWeights, nrmse
from metalforge.substrates import DeviceProfile, EmulatedDevice

from .candidates import HeadSums, Parameters, head_parts

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
