"""Reproducible experiments: a name and settings go in, rows of figures and what they mean come out."""

from . import hybrid_tanh, parity  # registers them
from .protocol import EXPERIMENTS, Experiment, Result, Row, Settings, find_experiment

__all__ = ["EXPERIMENTS", "Experiment", "Result", "Row", "Settings", "find_experiment", "hybrid_tanh", "parity"]
