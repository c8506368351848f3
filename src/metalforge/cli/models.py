"""Models from files as graphs: what `npu explain` and `npu compile` take besides matrices and programs."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from metalforge.core.errors import PlacementError

if TYPE_CHECKING:
    from metalforge.hybrid import OpGraph
    from metalforge.hybrid.routing.plan import Plan
    from metalforge.substrates.npu.program import Program

__all__ = ["MODEL_SUFFIXES", "load_graph", "model_programs", "print_plan"]

MODEL_SUFFIXES = (".onnx", ".safetensors", ".json")


def load_graph(path: Path, input_range: float | None) -> "OpGraph":
    """Return the graph of an ONNX model, or of a reservoir in safetensors or hotSpring's JSON.

    All inputs are taken to lie within `input_range`; None leaves that to calibration data.
    """
    from metalforge.hybrid.model.graph import graph_from_esn

    if path.suffix == ".onnx":
        from metalforge.hybrid.model.onnx_import import load_onnx

        graph = load_onnx(path)
    else:
        from metalforge.reservoir.files import load_weights

        graph = graph_from_esn(load_weights(path), name=path.stem)
    return graph if input_range is None else replace(graph, ranges=dict.fromkeys(graph.inputs, input_range))


def model_programs(graph: "OpGraph", tolerance: float) -> tuple[tuple["Program", ...], float]:
    """Return the programs of all layers that an NPU can hold, and the largest error of any of their outputs."""
    from metalforge.hybrid.routing.router import OperationRouter

    plan = OperationRouter(objective="hw_only", tolerance=tolerance).plan(graph)
    if not plan.jobs:
        reasons = "; ".join(f"{row.op}: {row.reason}" for row in plan.record.ops)
        raise PlacementError(
            f"no op of `{graph.name}` maps to the NPU: {reasons}\nhint: `npu explain` says what would help"
        )
    programs = tuple(program for job in plan.jobs for program in job.programs)
    return programs, max(float(job.error_bound.max()) for job in plan.jobs)


def print_plan(plan: "Plan") -> None:
    """Write a plan: a table of ops, how to make the others map, totals and notes."""
    from metalforge.hybrid.routing.plan import HEADER, cells

    from .output import print_table, print_text

    record = plan.record
    print_table(
        f"{record.graph} on {record.profile}, objective {record.objective}, policy {record.policy}, "
        f"host {record.host_profile}",
        HEADER,
        [cells(row) for row in record.ops],
    )
    for row in record.ops:
        if row.fix:
            print_text(f"{row.op}: to make it map: {row.fix}")
        if row.note:
            print_text(f"{row.op}: on the chip: {row.note}")
    print_text(f"device: {record.device_total.latency or record.device_total.unknown}")
    print_text(f"host: {record.host_total.latency or record.host_total.unknown}")
    for note in record.notes:
        print_text(f"note: {note}")
    print_text()
