"""Run one model on two substrates: plan a graph for an NPU and the host, run the plan, and read what it costs.

`model` holds graphs of ops, from networks made here and from ONNX; `routing` places them, `running` executes plans.
`esn` holds networks in software, on an NPU, or in chunks on both; `learning` trains on the device. `evaluation`
measures what a model costs and loses on a chip, and `search` finds a network for a task. `deploy` writes a model to a
file, and `load` reads it in any process.
"""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

if TYPE_CHECKING:
    from .deployed import Deployed, deploy, load
    from .deployed.model import DeployedPlan
    from .deployed.reader import deployed_profile, expect_one_source, require_npu, with_ranges
    from .esn.chunks import ChunkPlan, plan_chunks
    from .esn.network import HybridEsn, HybridStatistics
    from .esn.tasks import Task, loss, refit
    from .evaluation import Evaluation, evaluate
    from .model.graph import Node, OpGraph, graph_from_esn
    from .model.inputs import loaded
    from .model.onnx_import import load_onnx
    from .model.opening import as_graph, expect_model
    from .routing.candidates import DEFAULT_TOLERANCE
    from .routing.encodings import encoding_of, precision_of
    from .routing.plan import Plan, remarks, table
    from .routing.ranges import line_ranges
    from .routing.router import OperationRouter
    from .routing.rules import SEED_TABLE
    from .running.device_matrix import DeviceFallbackWarning, DeviceMatrix
    from .running.executor import HybridExecutor
    from .running.rule_examples import exercise
    from .search import Finalist, SearchBudget, SearchReport, SearchTask, StudyResult, data_task, search_network

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
