"""A model and its data go in; whether it fits the chip, what it costs there and what accuracy it loses come out."""

from .evaluate import evaluate
from .report import Evaluation, Figure, PrecisionRow

__all__ = ["Evaluation", "Figure", "PrecisionRow", "evaluate"]
