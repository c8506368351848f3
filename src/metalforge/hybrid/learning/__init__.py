"""Readouts that learn on the device: streams and targets go in, float masters and pushed int4 weights come out.

`network` has a reservoir and a readout that can be written while they run; `trainer` learns by `rules` on a
`schedule` under a `guard`; `backpropagation` trains all of a network in software; `evolution` needs no gradient;
`drift` and `response` say when; `speed` says how fast.
"""

from .backpropagation import BackpropagationTrainer
from .drift import DriftMonitor, DriftResponse, choose_threshold
from .evolution import Evolution, StreamWindow, Window
from .network import DeviceNetwork, Master, Trainable
from .rules import DivergenceGuard, GradientStep, RecursiveLeastSquares, RidgeRefit
from .schedule import PushSchedule, UpdatePlan, plan_updates
from .speed import measure_speed, seed_step
from .trainer import OnlineTrainer, TrainerStatistics, online_training_step

__all__ = [
    "BackpropagationTrainer",
    "DeviceNetwork",
    "DivergenceGuard",
    "DriftMonitor",
    "DriftResponse",
    "Evolution",
    "GradientStep",
    "Master",
    "OnlineTrainer",
    "PushSchedule",
    "RecursiveLeastSquares",
    "RidgeRefit",
    "StreamWindow",
    "Trainable",
    "TrainerStatistics",
    "UpdatePlan",
    "Window",
    "choose_threshold",
    "measure_speed",
    "online_training_step",
    "plan_updates",
    "seed_step",
]
