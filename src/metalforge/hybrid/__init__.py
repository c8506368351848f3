"""One model over two substrates: a graph and a device go in, a plan that explains itself and its results come out.

`model` has graphs of ops, from networks made here and from ONNX; `routing` places them, `running` executes plans.
`esn` holds networks with their product on an NPU, `chunking` those that are larger than one, `learning` trains on the
device. `evaluation` says what a model costs and loses on a chip, `search` finds a network for a task, and `attacks`
tells how easily one is fooled. What is found or made is written by `deploy` and comes back by `load`, in any process.
"""

from typing import TYPE_CHECKING

from metalforge.core.on_demand import on_demand

if TYPE_CHECKING:
    from .deployed import Deployed, deploy, load
    from .esn.network import HybridEsn, HybridStatistics
    from .esn.selector import SubstrateSelector
    from .esn.tasks import PrecisionChoice, Task, loss, refit
    from .evaluation import Evaluation, evaluate
    from .model.graph import Node, OpGraph, graph_from_esn
    from .model.onnx_import import load_onnx
    from .routing.plan import Plan
    from .routing.router import OperationRouter
    from .running.executor import HybridExecutor
    from .running.failure import DeviceFallbackWarning
    from .running.values import OutputMerger

__all__ = [
    "Deployed",
    "DeviceFallbackWarning",
    "Evaluation",
    "HybridEsn",
    "HybridExecutor",
    "HybridStatistics",
    "Node",
    "OpGraph",
    "OperationRouter",
    "OutputMerger",
    "Plan",
    "PrecisionChoice",
    "SubstrateSelector",
    "Task",
    "deploy",
    "evaluate",
    "graph_from_esn",
    "load",
    "load_onnx",
    "loss",
    "refit",
]
__getattr__, __dir__ = on_demand(__name__, __all__)
