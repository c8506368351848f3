"""One model over two substrates: a graph and a device go in, a plan that explains itself and its results come out."""

from .auto import PrecisionChoice
from .esn import HybridEsn, HybridStatistics
from .failure import DeviceFallbackWarning
from .graph import Node, OpGraph, graph_from_esn, graph_from_heads
from .tasks import Task, loss, refit

__all__ = [
    "DeviceFallbackWarning",
    "HybridEsn",
    "HybridStatistics",
    "Node",
    "OpGraph",
    "PrecisionChoice",
    "Task",
    "graph_from_esn",
    "graph_from_heads",
    "loss",
    "refit",
]
