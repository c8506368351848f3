"""One training step, as the seeds have it: forward on the device, gradient in software, weights back to the device."""

import numpy as np
from numpy.typing import ArrayLike

from metalforge.core.errors import SpecError
from metalforge.hybrid.running.executor import HybridExecutor
from metalforge.reservoir.series import SeriesError

from .executors import ExecutorReadout
from .losses import LossName, as_target, check_loss, loss_and_slope
from .network import Trainable
from .rules import GradientStep, Lesson

__all__ = ["online_training_step"]


def online_training_step(
    executor: HybridExecutor | Trainable,
    x: ArrayLike,
    target: ArrayLike,
    lr: float,
    *,
    loss: LossName = "mse",
) -> float:
    """Return the loss of one input (inputs,) and let the readout learn its target: W -= lr dL/dW, pushed at once.

    The output is the device's, rounding included. A `DeviceNetwork` learns its bias too; the readout of a
    `HybridExecutor` (its node `readout`) keeps the bias that it was planned with.
    """
    if not 0 < lr < float("inf"):
        raise SpecError(f"`lr` must be a positive number. Got {lr}")
    check_loss(loss)
    network: Trainable = ExecutorReadout(executor) if isinstance(executor, HybridExecutor) else executor
    old = network.master()
    wanted = as_target(target, len(old.out_bias), loss)
    if not np.all(np.isfinite(wanted)) or not np.all(np.isfinite(np.asarray(x, np.float64))):
        raise SeriesError("`x` and `target` must be finite. Got NaN or infinity")
    forward = network.forward(x)
    at = loss_and_slope(forward.output, wanted, loss)
    rule = GradientStep(rate=lr, error="device")
    _, new = rule.step(lr, old, Lesson(features=forward.features, target=wanted, at=at))
    network.push(new.w_out, old.out_bias if isinstance(executor, HybridExecutor) else new.out_bias)
    return at.value
