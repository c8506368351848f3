"""Run one model on two substrates: plan a graph for an NPU and the host, run the plan, and read what it costs.

`model` holds graphs of ops, from networks made here and from ONNX; `routing` places them, `running` executes plans.
`esn` holds networks in software, on an NPU, or in chunks on both; `learning` trains on the device. `evaluation`
measures what a model costs and loses on a chip, and `search` finds a network for a task. `deploy` writes a model to a
file, and `load` reads it in any process.
"""

from typing import TYPE_CHECKING

from metalforge.core.on_demand import on_demand

if TYPE_CHECKING:
    from .deployed import Deployed, deploy, load
    from .esn.chunks import ChunkPlan, plan_chunks
    from .esn.network import HybridEsn, HybridStatistics
    from .esn.tasks import PrecisionChoice, Task, loss, refit
    from .evaluation import Evaluation, evaluate
    from .model.graph import Node, OpGraph, graph_from_esn
    from .model.onnx_import import load_onnx
    from .routing.plan import Plan
    from .routing.router import OperationRouter
    from .running.device_matrix import DeviceFallbackWarning
    from .running.executor import HybridExecutor

__all__ = [
    "ChunkPlan",
    "Deployed",
    "DeviceFallbackWarning",
    "Evaluation",
    "HybridEsn",
    "HybridExecutor",
    "HybridStatistics",
    "Node",
    "OpGraph",
    "OperationRouter",
    "Plan",
    "PrecisionChoice",
    "Task",
    "deploy",
    "evaluate",
    "graph_from_esn",
    "load",
    "load_onnx",
    "loss",
    "plan_chunks",
    "refit",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
