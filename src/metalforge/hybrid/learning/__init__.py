"""Readouts that learn on the device: streams and targets go in, float masters and pushed int4 weights come out."""

from .backpropagation import BackpropagationTrainer
from .drift import DriftMonitor, DriftResponse, choose_threshold
from .evolution import Evolution, StreamWindow, Window
from .network import DeviceNetwork
from .rules import GradientStep, RecursiveLeastSquares, RidgeRefit
from .trainer import OnlineTrainer, UpdatePlan, online_training_step, plan_updates

__all__ = [
    "BackpropagationTrainer",
    "DeviceNetwork",
    "DriftMonitor",
    "DriftResponse",
    "Evolution",
    "GradientStep",
    "OnlineTrainer",
    "RecursiveLeastSquares",
    "RidgeRefit",
    "StreamWindow",
    "UpdatePlan",
    "Window",
    "choose_threshold",
    "online_training_step",
    "plan_updates",
]
