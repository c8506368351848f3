"""`npu compile | inspect | run | explain | rules | conformance | profile`: programs for the NPU and what they cost."""

import sys
from dataclasses import asdict
from itertools import count, takewhile
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import typer
from numpy.typing import NDArray

from metalforge.core import SpecError, escaped, load_array, load_arrays, replacing
from metalforge.substrates import (
    PROFILES,
    EmulatedDevice,
    Program,
    ResourceError,
    compile_linear,
    costs,
    joined,
    mesh,
    overflow_certificate,
    wire,
)

from .evaluate import evaluate
from .npu_models import (
    asked_precision,
    compiled_plan,
    matrix_encoding,
    model_programs,
    only,
    or_default,
    predicted,
    print_plan,
    range_note,
    ranged_graph,
    refuse_options,
    scaling_of,
)
from .output import MOST_SEED, Json, print_json, print_table, print_text

MODEL_SUFFIXES = (".onnx", ".safetensors", ".json")
MATRIX, PROGRAM = {".npy": "a matrix", ".npz": "a matrix"}, {".mfp": "a program"}
"""Kinds of files that some verbs take beside models, and what they are."""
app = typer.Typer(help="Programs for the int4 NPU.", no_args_is_help=True, rich_markup_mode=None)
Bits = Annotated[
    int | None,
    typer.Option(
        "--activation-bits", help="4, 8, 12 or 16. A matrix: 8 by default; a model: what the tolerance asks for."
    ),
]
Digits = Annotated[
    int | None,
    typer.Option(
        help="Weight digits: 1 (4 bits), 2 (8) or 3 (12). A matrix: 1 by default; a model: what the tolerance asks for."
    ),
]
Signed = Annotated[
    str | None, typer.Option(help="Matrices: unsigned, zero_point (default) or two_rail. Models: chosen by layer.")
]
Range = Annotated[
    float | None, typer.Option("--range", min=0, help="The largest size of an input; 1 where nothing says more.")
]
Profile = Annotated[str | None, typer.Option(help="Device profile to emulate; default: the model's own.")]
Calibration = Annotated[
    Path | None, typer.Option(help="Inputs to measure ranges on: .npy, or .npz for several or for series.")
]
Tolerance = Annotated[
    float | None, typer.Option(min=0, help="Models: relative error of an op that decides its precision; default: 0.01.")
]
OF_MODELS = ("objective", "policy", "host_power_w", "strict", "calibration", "input_range", "tolerance", "dot")
"""Parameters of `explain` that concern models alone."""
BATCHES = (1, 8, 64)
DEPLOYED = ".mfd"
"""Ending of a plan with all that runs it."""
app.command()(evaluate)


@app.command(name="compile")
def compile_model(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help=".onnx, a reservoir (.safetensors, .json), or a .npy matrix.")],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="A program (.mfp), or of a model all that runs it (.mfd), to write."),
    ],
    activation_bits: Bits = None,
    digits: Digits = None,
    signed: Signed = None,
    input_range: Range = None,
    calibration: Calibration = None,
    tolerance: Tolerance = None,
    as_json: Json = False,
) -> None:
    """Compile a matrix, or every layer of a model that an NPU can hold; several files where one is not enough.

    Programs of a model are the chip's share of it. The whole of it, biases and activations and what stays in software
    included, is written too, with the ending .mfd: that is what `npu run` takes. --activation-bits and --digits set the
    precision of all layers; where only one of them is given, the other is 8 or 1.
    """
    _expect(model, MATRIX)
    deployed = output.with_suffix(DEPLOYED) if model.suffix in MODEL_SUFFIXES else None
    if deployed is not None:
        from metalforge.hybrid import deploy

        plan = compiled_plan(context, model, input_range, calibration, activation_bits, digits, tolerance)
        programs, bound = model_programs(plan)
        made_by = {"command": "metalforge npu compile", "model": model.name}
        deploy(plan, deployed, provenance=made_by, **scaling_of(model))
        layers, ranges = plan.record.ops, plan.record.ranges
        report: dict[str, Any] = {"deployed": str(deployed), "layers": layers, "ranges": ranges}
        lines = [*(f"range: {known}" for known in ranges), *map(str, layers)]
        lines.append(range_note(plan.graph, input_range, calibration))
    elif output.suffix == DEPLOYED:
        raise SpecError(f"{output}: {DEPLOYED} holds a model; a matrix is written as .mfp, with the ranges it is for")
    else:
        refuse_options(context, "a matrix", "tolerance")
        encoding = matrix_encoding(activation_bits, digits, signed)
        largest, beyond = _line_ranges(input_range, calibration, encoding.activation_bits)
        compiled = compile_linear(output.stem, _matrix(model), encoding=encoding, ranges=largest)
        programs, bound = compiled.programs, float(np.max(compiled.error_bound))
        report, lines = {"beyond": beyond}, []
        if beyond:
            lines.append(f"{beyond} numbers of the calibration data lie beyond the ranges and would be clamped")
    several = len(programs) > 1
    paths = [output.with_stem(f"{output.stem}.{i}") if several else output for i in range(len(programs))]
    if output == deployed:
        paths = []
    for program, path in zip(programs, paths, strict=bool(paths)):
        wire.save(program, path)
    record = {"files": [str(p) for p in paths], "outputs": programs[-1].outputs, "error_bound": bound, **report}
    if as_json:
        print_json(record)
    else:
        names = ", ".join(f"{path} ({program.name})" for program, path in zip(programs, paths, strict=bool(paths)))
        names = ", ".join(filter(None, [names, f"{deployed} (all of it)" if deployed else ""]))
        print_text("\n".join([f"wrote {names}: {record['outputs']} outputs, off by at most {bound:.3g}", *lines]))


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
    context: typer.Context,
    model: Annotated[
        Path,
        typer.Argument(help="A deployed model (.mfd, a folder of `search --out`), .onnx, weights, or a .mfp program."),
    ],
    inputs: Annotated[
        Path | None, typer.Argument(help=".npy or .npz: raw inputs of a model; lines (uint8) or reals of a program.")
    ] = None,
    given: Annotated[Path | None, typer.Option("--input", help="The same, by name.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the result, an array in the format of .npy, to this file."),
    ] = None,
    profile: Profile = None,
    input_range: Annotated[
        float | None,
        typer.Option("--range", min=0, help="The largest size of an input, where the file does not say it."),
    ] = None,
    calibration: Calibration = None,
    allow_host: Annotated[
        bool, typer.Option("--allow-host", help="Models: run also where no layer can run on the NPU.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a model or a program on the emulated NPU; say which layers ran where, and what that is modelled to cost.

    Models that were not compiled (.onnx, weights) are compiled first. Exits with 3 where no layer runs on the NPU.
    """
    if (inputs is None) == (given is None):
        raise SpecError("give the inputs, once\nhint: metalforge npu run MODEL --input X.npy")
    arrays = load_arrays(given or inputs)  # type: ignore[arg-type]  # one of them is there
    result: Any
    if not model.is_dir():
        _expect(model, PROGRAM | {DEPLOYED: "a deployed model"})
    more: dict[str, Any] = {}
    if model.suffix == ".mfp":
        refuse_options(context, "a program", "calibration", "allow_host")
        programs, x = _programs(model), only(arrays)
        with EmulatedDevice(profile or "akd1000-published") as device:

            def infer(program: Program, rows: NDArray[np.uint8]) -> NDArray[Any]:
                device.load(program)
                return device.infer_linear(rows)

            if x.dtype == np.uint8 and len(programs) == 1:
                device.load(programs[0])
                result = device.infer(x)
            else:
                compiled = joined(programs, ranges=input_range)
                result = compiled.run(x, infer)
                more = {"clipped": int(np.count_nonzero(np.abs(x) > compiled.ranges))}
            statistics = device.statistics()
    else:
        result, statistics, more = predicted(
            model, arrays, profile, input_range=input_range, calibration=calibration, allow_host=allow_host
        )
    if more.get("clipped"):
        sys.stderr.write(
            f"{more['clipped']} numbers were beyond the ranges that were compiled for, and were clamped"
            "\nhint: compile for larger ones\n"
        )
    named = {str(i): np.asarray(y) for i, y in enumerate(result)} if isinstance(result, list) else result
    if output is not None:
        with replacing(output) as stream:
            np.savez(stream, **named) if isinstance(named, dict) else np.save(stream, named, allow_pickle=False)
    if as_json:
        plain = {name: y.tolist() for name, y in named.items()} if isinstance(named, dict) else named.tolist()
        print_json({"result": None if output else plain, "statistics": statistics, **more})
    else:
        shown = named if isinstance(named, dict) else {"": named}
        for name, y in {} if output else shown.items():
            print_text((f"{name!r}:\n" if name else "") + np.array2string(y, threshold=200))
        for line in (*([f"wrote {output}"] if output else []), *more.get("layers", ())):
            print_text(str(line))
        costs = ", ".join(str(cost) for cost in (statistics.busy, statistics.energy) if cost is not None)
        calls = f"{statistics.calls} device calls of {statistics.inferences} rows: {costs or 'no cost is modelled'}"
        print_text(calls if statistics.calls else "no device call: the host computed everything")


@app.command()
def explain(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help=".onnx, a reservoir (.safetensors, .json), .mfp, or a .npy matrix.")],
    profile: Annotated[str | None, typer.Option(help="One device profile; default: all.")] = None,
    objective: Annotated[str, typer.Option(help="Models: latency, energy, accuracy or hw_only.")] = "latency",
    policy: Annotated[str, typer.Option(help="Models: default, or seed (the thirteen-row table).")] = "default",
    host_power_w: Annotated[float | None, typer.Option(min=0, help="Models: the host's watts, for energy.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Models: fail where an op would fall back.")] = False,
    calibration: Calibration = None,
    input_range: Range = None,
    tolerance: Tolerance = None,
    dot: Annotated[bool, typer.Option("--dot", help="Models: write the plan for Graphviz.")] = False,
    activation_bits: Bits = None,
    digits: Digits = None,
    signed: Signed = None,
    as_json: Json = False,
) -> None:
    """Say what runs where, why, what would make it map, and what it costs; for matrices and programs, what fits."""
    _expect(model, MATRIX | PROGRAM)
    profiles = [profile] if profile else list(PROFILES)
    if model.suffix in MODEL_SUFFIXES:
        from metalforge.hybrid import OperationRouter

        precision = asked_precision(context, activation_bits, digits)
        routers = [
            OperationRouter(
                policy,  # type: ignore[arg-type]  # checked there
                objective,  # type: ignore[arg-type]
                name,
                tolerance=or_default(tolerance),
                precision=precision,
                host_power_w=host_power_w,
            )
            for name in profiles
        ]
        graph, data = ranged_graph(model, input_range, calibration)
        plans = [router.plan(graph, strict=strict, calibration=data) for router in routers]
        if as_json and not dot:
            print_json([plan.record for plan in plans])
            return
        for plan in plans:
            print_text(plan.to_dot()) if dot else print_plan(plan)
        if not dot:
            print_text(range_note(graph, input_range, calibration))
        return
    if model.suffix in MATRIX:
        refuse_options(context, "a matrix", *OF_MODELS)
        encoding = matrix_encoding(activation_bits, digits, signed)
        programs: tuple[Program, ...] = compile_linear(model.stem, _matrix(model), encoding=encoding).programs
    else:
        refuse_options(context, "a program", *OF_MODELS, "activation_bits", "digits", "signed")
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
    from metalforge.hybrid import SEED_TABLE, exercise

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
    from metalforge.substrates import AkidaDevice, compare

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
        from metalforge.substrates import write_sdk_profile

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
        from metalforge.hybrid import expect_model

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


def _line_ranges(
    input_range: float | None, calibration: Path | None, activation_bits: int
) -> tuple[float | NDArray[Any], int]:
    """Return the range of a matrix's inputs, or with data of each of them, and how many numbers lie beyond."""
    if calibration is None:
        return 1.0 if input_range is None else input_range, 0
    from metalforge.hybrid import expect_one_source, line_ranges

    expect_one_source(input_range, calibration)
    values = np.atleast_2d(_matrix(calibration))
    ranges = line_ranges(values, activation_bits)
    return ranges, int(np.count_nonzero(np.abs(values) > ranges))
