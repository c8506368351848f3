"""`npu compile | inspect | run | explain | rules | conformance | profile`: programs for the NPU and what they cost."""

import sys
from dataclasses import asdict, replace
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import typer
from numpy.typing import NDArray

from metalforge.core.array_files import load_array, load_arrays
from metalforge.core.errors import PlacementError, SpecError
from metalforge.core.escapes import escaped
from metalforge.core.files import replacing
from metalforge.substrates.npu import costs, mesh, wire
from metalforge.substrates.npu.certificate import overflow_certificate
from metalforge.substrates.npu.compile import compile_linear, joined
from metalforge.substrates.npu.device import ResourceError, Statistics
from metalforge.substrates.npu.emulator import EmulatedDevice
from metalforge.substrates.npu.program import Encoding, Program
from metalforge.substrates.profiles import PROFILES

from .evaluate import evaluate
from .output import MOST_SEED, Json, print_json, print_table, print_text

if TYPE_CHECKING:
    from metalforge.hybrid import OpGraph
    from metalforge.hybrid.routing.plan import Plan

MODEL_SUFFIXES = (".onnx", ".safetensors", ".json")
MATRIX, PROGRAM = {".npy": "a matrix", ".npz": "a matrix"}, {".mfp": "a program"}
"""Kinds of files that some verbs take beside models, and what they are."""
app = typer.Typer(help="Programs for the int4 NPU.", no_args_is_help=True, rich_markup_mode=None)
Bits = Annotated[int, typer.Option("--activation-bits", help="4, 8, 12 or 16.")]
Digits = Annotated[int, typer.Option(help="Weight digits: 1 (4 bits), 2 (8) or 3 (12).")]
Signed = Annotated[str, typer.Option(help="unsigned, zero_point or two_rail.")]
Range = Annotated[
    float | None, typer.Option("--range", min=0, help="The largest size of an input; 1 where nothing says more.")
]
Calibration = Annotated[
    Path | None, typer.Option(help="Inputs to measure ranges on: .npy, or .npz for several or for series.")
]
Tolerance = Annotated[float, typer.Option(min=0, help="Models: relative error of an op that decides its precision.")]
BATCHES = (1, 8, 64)
DEPLOYED = ".mfd"
"""Ending of a plan with all that runs it."""
app.command()(evaluate)


@app.command(name="compile")
def compile_model(
    model: Annotated[Path, typer.Argument(help=".onnx, a reservoir (.safetensors, .json), or a .npy matrix.")],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="A program (.mfp), or of a model all that runs it (.mfd), to write."),
    ],
    activation_bits: Bits = 8,
    digits: Digits = 1,
    signed: Signed = "zero_point",
    input_range: Range = None,
    calibration: Calibration = None,
    tolerance: Tolerance = 0.01,
    as_json: Json = False,
) -> None:
    """Compile a matrix, or every layer of a model that an NPU can hold; several files where one is not enough.

    Programs of a model are the chip's share of it. The whole of it, biases and activations and what stays in software
    included, is written too, with the ending .mfd: that is what `npu run` takes.
    """
    _expect(model, MATRIX)
    deployed = output.with_suffix(DEPLOYED) if model.suffix in MODEL_SUFFIXES else None
    if deployed is not None:
        from metalforge.hybrid import deploy
        from metalforge.hybrid.routing.router import OperationRouter

        graph, data = _ranged(model, input_range, calibration)
        plan = OperationRouter(objective="hw_only", tolerance=tolerance).plan(graph, calibration=data)
        programs, bound = _model_programs(plan)
        deploy(plan, deployed, provenance={"command": "metalforge npu compile", "model": model.name}, **_scaling(model))
    elif output.suffix == DEPLOYED:
        raise SpecError(f"{output}: {DEPLOYED} holds a model; a matrix is written as .mfp, with the ranges it is for")
    else:
        encoding = Encoding(activation_bits=activation_bits, digits=digits, signed=signed)
        compiled = compile_linear(
            output.stem, _matrix(model), encoding=encoding, ranges=_line_ranges(input_range, calibration)
        )
        programs, bound = compiled.programs, float(np.max(compiled.error_bound))
    several = len(programs) > 1
    paths = [output.with_stem(f"{output.stem}.{i}") if several else output for i in range(len(programs))]
    if output == deployed:
        paths = []
    for program, path in zip(programs, paths, strict=bool(paths)):
        wire.save(program, path)
    record = {"files": [str(p) for p in paths], "outputs": programs[-1].outputs, "error_bound": bound}
    if deployed is not None:
        record["deployed"] = str(deployed)
    if as_json:
        print_json(record)
    else:
        names = ", ".join(f"{path} ({program.name})" for program, path in zip(programs, paths, strict=bool(paths)))
        names = ", ".join(filter(None, [names, f"{deployed} (all of it)" if deployed else ""]))
        print_text(f"wrote {names}: {record['outputs']} outputs, off by at most {bound:.3g}")


@app.command()
def inspect(
    program: Annotated[Path, typer.Argument(help="A .mfp program, or a deployed model as `npu run` takes it.")],
    as_json: Json = False,
) -> None:
    """Show what a program holds, and whether its sums can overflow; of a deployed model, all that it is run with."""
    if program.is_dir() or program.suffix in (DEPLOYED, ".safetensors"):
        from metalforge.hybrid import load

        with load(program) as model:
            facts = msgspec.to_builtins(model.facts())
        lines = [f"{name}: {escaped(msgspec.json.encode(value).decode())}" for name, value in facts.items()]
        print_json(facts) if as_json else print_text("\n".join(lines))
        return
    loaded = wire.load(program)
    rows = [
        {
            "layer": layer.name,
            "inputs": layer.inputs,
            "units": layer.units,
            "weight_bits": layer.weight_bits,
            "input_bits": layer.input_bits,
            "activation": layer.activation.value,
            "overflow": "impossible" if overflow_certificate(layer).safe else "possible",
        }
        for layer in loaded.layers
    ]
    record = {
        "name": loaded.name,
        "fingerprint": loaded.fingerprint(),
        "encoding": asdict(loaded.encoding),
        "layers": rows,
        "heads": [asdict(head) for head in loaded.heads],
        "schema": loaded.schema,
        "provenance": dict(loaded.provenance),
    }
    if as_json:
        print_json(record)
        return
    # Texts of a file are a stranger's words: shown quoted.
    print_text(f"{loaded.name!r}, fingerprint {record['fingerprint']}")
    print_text(f"encoding {record['encoding']}, schema {loaded.schema!r}, provenance {dict(loaded.provenance)!r}")
    print_table("Layers", list(rows[0]), [[str(v) for v in row.values()] for row in rows])
    if loaded.heads:
        heads = [(repr(h.name), str(h.start), str(h.width)) for h in loaded.heads]
        print_table("Heads", ("head", "start", "width"), heads)


@app.command()
def run(
    model: Annotated[
        Path,
        typer.Argument(help="A deployed model (.mfd, .safetensors, a folder of `search --out`), or a .mfp program."),
    ],
    inputs: Annotated[
        Path | None, typer.Argument(help=".npy or .npz: raw inputs of a model; lines (uint8) or reals of a program.")
    ] = None,
    given: Annotated[Path | None, typer.Option("--input", help="The same, by name.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the result, an array in the format of .npy, to this file."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Device profile for the modelled costs; default: the model's own.")
    ] = None,
    input_range: Annotated[
        float | None, typer.Option("--range", min=0, help="Programs that do not say it: the largest size of an input.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a deployed model, or a program, on the emulated NPU; costs are modelled from the profile."""
    if (inputs is None) == (given is None):
        raise SpecError("give the inputs, once\nhint: metalforge npu run MODEL --input X.npy")
    arrays = load_arrays(given or inputs)  # type: ignore[arg-type]  # one of them is there
    result: Any
    if not model.is_dir():
        _expect(model, PROGRAM | {DEPLOYED: "a deployed model"})
    if model.suffix == ".mfp":
        programs, x = _programs(model), _only(arrays)
        with EmulatedDevice(profile or "akd1000-published") as device:

            def infer(program: Program, rows: NDArray[np.uint8]) -> NDArray[Any]:
                device.load(program)
                return device.infer_linear(rows)

            if x.dtype == np.uint8 and len(programs) == 1:
                device.load(programs[0])
                result = device.infer(x)
            else:
                result = joined(programs, ranges=input_range).run(x, infer)
            statistics = device.statistics()
    else:
        result, statistics = _predicted(model, arrays, profile)
    named = {str(i): np.asarray(y) for i, y in enumerate(result)} if isinstance(result, list) else result
    if output is not None:
        with replacing(output) as stream:
            np.savez(stream, **named) if isinstance(named, dict) else np.save(stream, named, allow_pickle=False)
    if as_json:
        plain = {name: y.tolist() for name, y in named.items()} if isinstance(named, dict) else named.tolist()
        print_json({"result": None if output else plain, "statistics": statistics})
    else:
        shown = named if isinstance(named, dict) else {"": named}
        for name, y in {} if output else shown.items():
            print_text((f"{name!r}:\n" if name else "") + np.array2string(y, threshold=200))
        print_text((f"wrote {output}\n" if output else "") + f"modelled: {statistics}")


@app.command()
def explain(
    model: Annotated[Path, typer.Argument(help=".onnx, a reservoir (.safetensors, .json), .mfp, or a .npy matrix.")],
    profile: Annotated[str | None, typer.Option(help="One device profile; default: all.")] = None,
    objective: Annotated[str, typer.Option(help="Models: latency, energy, accuracy or hw_only.")] = "latency",
    policy: Annotated[str, typer.Option(help="Models: default, or seed (the thirteen-row table).")] = "default",
    host_power_w: Annotated[float | None, typer.Option(min=0, help="Models: the host's watts, for energy.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Models: fail where an op would fall back.")] = False,
    calibration: Calibration = None,
    input_range: Range = None,
    tolerance: Tolerance = 0.01,
    dot: Annotated[bool, typer.Option("--dot", help="Models: write the plan for Graphviz.")] = False,
    activation_bits: Bits = 8,
    digits: Digits = 1,
    signed: Signed = "zero_point",
    as_json: Json = False,
) -> None:
    """Say what runs where, why, what would make it map, and what it costs; for matrices and programs, what fits."""
    _expect(model, MATRIX | PROGRAM)
    profiles = [profile] if profile else list(PROFILES)
    if model.suffix in MODEL_SUFFIXES:
        from metalforge.hybrid.routing.router import OperationRouter

        routers = [
            OperationRouter(policy, objective, name, tolerance=tolerance, host_power_w=host_power_w)  # type: ignore[arg-type]  # checked there
            for name in profiles
        ]
        graph, data = _ranged(model, input_range, calibration)
        plans = [router.plan(graph, strict=strict, calibration=data) for router in routers]
        if as_json and not dot:
            print_json([plan.record for plan in plans])
            return
        for plan in plans:
            print_text(plan.to_dot()) if dot else _print_plan(plan)
        if not dot:
            print_text(_assumed(graph, input_range, calibration))
        return
    if model.suffix == ".npy":
        encoding = Encoding(activation_bits=activation_bits, digits=digits, signed=signed)
        programs: tuple[Program, ...] = compile_linear(model.stem, _matrix(model), encoding=encoding).programs
    else:
        programs = (wire.load(model),)
    records = [_explained(p, name) for p in programs for name in profiles]
    if as_json:
        print_json(records)
        return
    for record in records:
        print_text(f"{record['program']!r} on {record['profile']}")
        if "refused" in record:
            print_text(f"does not fit: {record['refused']}\n")
            continue
        placed = [tuple(map(str, row)) for row in record["placement"]]
        print_table("Placement", ("layer", "processor", "bytes", "why"), placed)
        prices = [(str(b), str(c.latency or c.unknown), str(c.energy or c.unknown)) for b, c in record["costs"].items()]
        print_table("Cost per call", ("batch", "latency", "energy"), prices)


@app.command()
def rules(
    rule: Annotated[str | None, typer.Argument(help="One rule, such as tanh, with its plan; default: all.")] = None,
    as_json: Json = False,
) -> None:
    """Show the thirteen rules of the published routing table, each at work on a small model on the emulated NPU."""
    from metalforge.hybrid.routing.seed_policy import SEED_TABLE
    from metalforge.hybrid.running.rule_examples import exercise

    shown = [exercise(name) for name in ([rule] if rule else [row.applies for row in SEED_TABLE])]
    if as_json:
        print_json(shown)
        return
    print_text("\n\n".join(map(str, shown)))
    if rule:
        print_text(f"\nthe plan says of it:\n{shown[0].plan}")


@app.command()
def conformance(
    programs: Annotated[int, typer.Option(min=1, help="Random programs to compare.")] = 50,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED)] = 1,
    as_json: Json = False,
) -> None:
    """Compare the emulator with the vendor's SDK bit for bit, for your eyes only; needs the extra `npu`."""
    from metalforge.substrates.npu.akida_ import AkidaDevice
    from metalforge.substrates.npu.conformance import compare

    report = compare(EmulatedDevice(), AkidaDevice(), seed=seed, n=programs)
    print_json({"passed": report.ok, "failed": report.failed}) if as_json else print_text(str(report))
    if not report.ok:
        raise typer.Exit(1)


@app.command(name="profile")
def write_profile(
    from_sdk: Annotated[bool, typer.Option("--from-sdk", help="Ask your own SDK what the chip's mesh holds.")] = False,
    output: Annotated[Path, typer.Option("-o", "--output", help="A private file, outside any source tree.")] = Path(
        "~/.config/metalforge/akd1000-sdk.toml"
    ),
    as_json: Json = False,
) -> None:
    """Show the shipped device profiles with the source of every number, or write a private one from your SDK."""
    if from_sdk:
        from metalforge.substrates.npu.akida_ import write_sdk_profile

        target = output.expanduser()
        write_sdk_profile(target)
        print_json({"file": str(target)}) if as_json else print_text(f"wrote {target}; use it with --profile {target}")
        return
    if as_json:
        keys = ("figure", "value", "source")
        print_json({n: [dict(zip(keys, row, strict=True)) for row in p.figures()] for n, p in PROFILES.items()})
        return
    for name, device in PROFILES.items():
        print_table(name, ("figure", "value", "source"), [tuple(map(str, row)) for row in device.figures()])


def _explained(program: Program, profile: str) -> dict[str, Any]:
    try:
        placement = mesh.plan(program, profile)
    except ResourceError as error:
        return {"program": program.name, "profile": profile, "refused": str(error)}
    rows = program.encoding.rows
    priced = {batch: costs.cost(program, batch * rows, profile) for batch in BATCHES}
    return {"program": program.name, "profile": profile, "placement": placement.rows, "costs": priced}


def _expect(model: Path, others: dict[str, str]) -> None:
    """Raise for a file of another kind than models have or than these, with what there is."""
    if model.suffix not in (*MODEL_SUFFIXES, *others):
        from metalforge.hybrid.model.opening import expect_model

        expect_model(model, others)


def _matrix(path: Path) -> NDArray[Any]:
    """Return the array of one or two axes in a file."""
    values = load_array(path)
    if values.ndim not in (1, 2) or values.dtype.kind not in "iuf":
        raise SpecError(f"{path}: must hold numbers with one or two axes. Got {values.dtype} of shape {values.shape}")
    return values


def _programs(path: Path) -> tuple[Program, ...]:
    """Return the program in a file, or those that a matrix of this name was split into."""
    if path.exists():
        return (wire.load(path),)
    numbered = (path.with_stem(f"{path.stem}.{i}") for i in count())
    return tuple(wire.load(one) for one in takewhile(Path.exists, numbered)) or (wire.load(path),)


def _only(arrays: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the one array of a file."""
    if len(arrays) != 1:
        raise SpecError(f"one array is wanted. Got {len(arrays)}: {', '.join(map(repr, arrays))}")
    return next(iter(arrays.values()))


def _predicted(model: Path, arrays: dict[str, NDArray[Any]], profile: str | None) -> tuple[Any, Statistics]:
    """Return what a deployed model says: of one array, of a graph's inputs by name, or of series of any lengths."""
    from metalforge.hybrid import load
    from metalforge.hybrid.deployed.model import DeployedPlan

    with load(model, device=None if profile is None else EmulatedDevice(profile)) as ready:
        plan = ready.plan if isinstance(ready, DeployedPlan) else None
        if plan is not None and set(arrays) == set(plan.graph.inputs):
            result = ready.predict(arrays)
        else:
            result = ready.predict(_only(arrays) if len(arrays) == 1 or plan else list(arrays.values()))
        if isinstance(ready, DeployedPlan) and (clipped := ready.executor.statistics().clipped):
            sys.stderr.write(
                f"{clipped} numbers were beyond the range that the model was compiled for, and were clamped"
                "\nhint: compile it for larger ones\n"
            )
        return result, Statistics() if ready.device is None else ready.device.statistics()


def _ranged(path: Path, input_range: float | None, calibration: Path | None) -> tuple["OpGraph", Any]:
    """Return the graph of a model and its calibration data; without any, its inputs are taken to be in a range."""
    from metalforge.hybrid.deployed.model import scaled_inputs
    from metalforge.hybrid.model.inputs import load_inputs
    from metalforge.hybrid.model.opening import as_graph

    graph = as_graph(path)
    if calibration is None:
        given = {} if input_range is None and graph.ranges else dict.fromkeys(graph.inputs, _or_one(input_range))
        return replace(graph, ranges=given or graph.ranges), None
    if input_range is not None:
        raise SpecError("the range of the inputs is given, or measured on data: `--range` or `--calibration`, not both")
    data = load_inputs(graph, calibration)
    schema = _scaling(path).get("features")
    return replace(graph, ranges={}), [scaled_inputs(schema, batch) for batch in data]


def _line_ranges(input_range: float | None, calibration: Path | None) -> float | NDArray[Any]:
    """Return the range of a matrix's inputs, or with data of each of them."""
    if calibration is None:
        return _or_one(input_range)
    largest = np.abs(np.atleast_2d(_matrix(calibration))).max(axis=0).astype(np.float64)
    return np.where(largest > 0, largest, float(largest.max()) or 1.0)


def _or_one(input_range: float | None) -> float:
    return 1.0 if input_range is None else input_range


def _assumed(graph: "OpGraph", input_range: float | None, calibration: Path | None) -> str:
    """Return what a reader must know of the range of the inputs."""
    if calibration is not None:
        return f"ranges were measured on {calibration}"
    largest = max(graph.ranges.values())
    how = "as --range says" if input_range is not None else "as the file says or nobody gave another"
    return (
        f"inputs are taken to be within {largest:g}, {how}; what is larger is clamped on the chip"
        "\nhint: --calibration X.npy measures how large they are"
    )


def _model_programs(plan: "Plan") -> tuple[tuple["Program", ...], float]:
    """Return the programs of all layers that an NPU can hold, and the largest error of any of their outputs."""
    graph = plan.graph
    if not plan.jobs:
        reasons = "; ".join(f"{row.op}: {row.reason}" for row in plan.record.ops)
        raise PlacementError(
            f"no op of `{graph.name}` maps to the NPU: {reasons}\nhint: `npu explain` says what would help"
        )
    programs = tuple(program for job in plan.jobs for program in job.programs)
    return programs, max(float(job.error_bound.max()) for job in plan.jobs)


def _scaling(path: Path) -> dict[str, Any]:
    """Return what scales the inputs and outputs of a model, where its file says so."""
    if path.suffix == ".onnx":
        return {}
    from metalforge.reservoir.files import load_weights

    weights = load_weights(path, check_stability=False)
    return {"features": weights.features, "heads": weights.heads}


def _print_plan(plan: "Plan") -> None:
    """Write a plan: a table of ops, how to make the others map, totals and notes."""
    from metalforge.hybrid.routing.plan import remarks, table

    shown = table(plan.record)
    print_table(shown.title, shown.columns, shown.rows)
    print_text("\n".join([*remarks(plan.record), ""]))
