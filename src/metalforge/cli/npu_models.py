"""The steps of `npu compile`, `npu run` and `npu explain` that concern models, and the options of their precision."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from numpy.typing import NDArray

from metalforge.core import SpecError
from metalforge.substrates import EmulatedDevice, Encoding, Program, Statistics

from .output import given_options, print_table, print_text

if TYPE_CHECKING:
    from metalforge.hybrid import OpGraph, Plan

DEFAULT_BITS, DEFAULT_DIGITS = 8, 1
"""Of activations and of weights, where only one of them is given."""


def compiled_plan(
    context: typer.Context,
    model: Path,
    input_range: float | None,
    calibration: Path | None,
    bits: int | None,
    digits: int | None,
    tolerance: float | None,
) -> "Plan":
    """Return the plan that puts all on the NPU that it can run, at the precision that was asked for."""
    from metalforge.hybrid import OperationRouter

    precision = asked_precision(context, bits, digits)
    graph, data = ranged_graph(model, input_range, calibration)
    router = OperationRouter(objective="hw_only", tolerance=or_default(tolerance), precision=precision)
    plan = router.plan(graph, calibration=data)
    others = [f"`{row.op}` to {row.encoding}" for row in plan.record.ops if row.encoding not in ("", precision)]
    if precision is not None and others:
        raise SpecError(
            f"{precision} was asked for, and weights that are integers already bind {', '.join(others)}"
            "\nhint: leave --activation-bits and --digits out, or give those"
        )
    return plan


def predicted(
    model: Path, arrays: dict[str, NDArray[Any]], profile: str | None, **asked: Any
) -> tuple[Any, Statistics, dict[str, Any]]:
    """Return the outputs of a model for one array, a graph's inputs by name or series of any lengths.

    With them come what the device did, and where each layer ran.
    """
    from metalforge.hybrid import DeployedPlan, deployed_profile, load

    with (
        EmulatedDevice(profile or deployed_profile(model)) as device,
        load(model, device=device, **asked) as ready,
    ):
        plan = ready.plan if isinstance(ready, DeployedPlan) else None
        if plan is not None and set(arrays) == set(plan.graph.inputs):
            result = ready.predict(arrays)
        else:
            result = ready.predict(only(arrays) if len(arrays) == 1 or plan else list(arrays.values()))
        return result, device.statistics(), {"layers": ready.places(), "clipped": ready.clipped}


def ranged_graph(path: Path, input_range: float | None, calibration: Path | None) -> tuple["OpGraph", Any]:
    """Return the graph of a model and its calibration data; without any, its inputs are taken to be in a range."""
    from metalforge.hybrid import as_graph, with_ranges

    graph, data = with_ranges(as_graph(path), scaling_of(path).get("features"), input_range, calibration)
    if data is None and not graph.ranges:
        graph = replace(graph, ranges=dict.fromkeys(graph.inputs, 1.0))
    return graph, data


def range_note(graph: "OpGraph", input_range: float | None, calibration: Path | None) -> str:
    """Return where the range of the inputs comes from."""
    if calibration is not None:
        return f"ranges were measured on {calibration}"
    largest = max(graph.ranges.values())
    how = "given by --range" if input_range is not None else "of the file, or 1 by default"
    return (
        f"inputs are assumed to be within {largest:g} ({how}); larger ones are clamped on the NPU"
        "\nhint: --calibration X.npy measures the range"
    )


def scaling_of(path: Path) -> dict[str, Any]:
    """Return what scales the inputs and outputs of a model, where its file says so."""
    if path.suffix == ".onnx":
        return {}
    from metalforge.reservoir import load_weights

    weights = load_weights(path, check_stability=False)
    return {"features": weights.features, "heads": weights.heads}


def model_programs(plan: "Plan") -> tuple[tuple["Program", ...], float]:
    """Return the programs of all layers that an NPU can hold, and the largest error of any of their outputs."""
    from metalforge.hybrid import require_npu

    require_npu(plan.graph.name, plan.record.ops)
    programs = tuple(program for job in plan.jobs for program in job.programs)
    return programs, max(float(job.error_bound.max()) for job in plan.jobs)


def print_plan(plan: "Plan") -> None:
    """Write a plan: a table of ops, how to make the others map, totals and notes."""
    from metalforge.hybrid import remarks, table

    shown = table(plan.record)
    print_table(shown.title, shown.columns, shown.rows)
    print_text("\n".join([*remarks(plan.record), ""]))


def matrix_encoding(bits: int | None, digits: int | None, signed: str | None) -> Encoding:
    """Return the encoding of a matrix."""
    return Encoding(
        activation_bits=DEFAULT_BITS if bits is None else bits,
        digits=DEFAULT_DIGITS if digits is None else digits,
        signed="zero_point" if signed is None else signed,
    )


def asked_precision(context: typer.Context, bits: int | None, digits: int | None) -> str | None:
    """Return the precision of all layers of a model; None where the tolerance decides layer by layer."""
    from metalforge.hybrid import precision_of

    refuse_options(context, "a model (its layers are encoded by the sign of their inputs)", "signed")
    if bits is None and digits is None:
        return None
    refuse_options(context, "a model whose precision is given", "tolerance")
    return precision_of(matrix_encoding(bits, digits, None))


def or_default(tolerance: float | None) -> float:
    """Return the tolerance that was given, or the router's own."""
    from metalforge.hybrid import DEFAULT_TOLERANCE

    return DEFAULT_TOLERANCE if tolerance is None else tolerance


def refuse_options(context: typer.Context, what: str, *names: str) -> None:
    """Raise where options are given that do not apply."""
    if given := given_options(context, *names):
        raise SpecError(
            f"{what} does not take {', '.join(given)}\nhint: leave {'it' if len(given) == 1 else 'them'} out"
        )


def only(arrays: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the one array of a file."""
    if len(arrays) != 1:
        raise SpecError(f"one array is wanted. Got {len(arrays)}: {', '.join(map(repr, arrays))}")
    return next(iter(arrays.values()))
