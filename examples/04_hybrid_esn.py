"""A tanh reservoir with its product on an int4 chip: the ladder of precisions, and what each costs."""

import sys

from metalforge.hybrid import HybridEsn, Task, loss, refit
from metalforge.reservoir import make_esn
from metalforge.reservoir.datasets import narma
from metalforge.substrates.npu import EmulatedDevice

steps = 600 if "--quick" in sys.argv else 3000
u, y = narma(2 * steps, seed=7)
u = 2 * (u - 0.25)
train = Task(inputs=u[None, :steps], targets=y[None, :steps], washout=100)
test = Task(inputs=u[None, steps:], targets=y[None, steps:], washout=100)

weights = make_esn(128, 1, seed=7, connectivity=1.0, input_scaling=0.5, bias_scaling=0.2)
software = refit(HybridEsn.from_weights(weights, calibration=train.inputs), train)
print(f"software f64          NRMSE {loss(software, test):.3f}")

for precision in ("W4A4", "W4A8", "W8A8", "W12A12"):
    with EmulatedDevice() as device:
        kept = software.with_hardware_linear(device, precision=precision)
        fitted = refit(kept, train)
        seen = kept.statistics()
        print(
            f"last layer {precision:7}    NRMSE {loss(kept, test):.3f} with the readout unchanged, "
            f"{loss(fitted, test):.3f} refitted; {seen.device} for {seen.steps} steps"
        )
