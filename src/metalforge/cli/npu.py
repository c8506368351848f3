"""`npu compile | inspect | run | explain | conformance | profile`: programs for the NPU, and what they cost there."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from metalforge.core.errors import SpecError
from metalforge.core.substrate import Cost
from metalforge.substrates.npu import costs, mesh, wire
from metalforge.substrates.npu.certificate import overflow_certificate
from metalforge.substrates.npu.compile import compile_linear
from metalforge.substrates.npu.device import ResourceError
from metalforge.substrates.npu.emulator import EmulatedDevice
from metalforge.substrates.npu.ladder import ladder_of
from metalforge.substrates.npu.program import Encoding, Program
from metalforge.substrates.profiles import PROFILES

from .machine import Json
from .models import MODEL_SUFFIXES, load_graph, model_programs, print_plan
from .output import print_json, print_table, print_text

if TYPE_CHECKING:
    from metalforge.hybrid import OpGraph
    from metalforge.hybrid.routing.router import OperationRouter

__all__ = ["app"]

app = typer.Typer(help="Programs for the int4 NPU.", no_args_is_help=True, rich_markup_mode=None)
Bits = Annotated[int, typer.Option("--activation-bits", help="4, 8, 12 or 16.")]
Digits = Annotated[int, typer.Option(help="Weight digits: 1 (4 bits), 2 (8) or 3 (12).")]
Signed = Annotated[str, typer.Option(help="unsigned, zero_point or two_rail.")]
Range = Annotated[float, typer.Option("--range", help="The largest size of an input.")]
BATCHES = (1, 8, 64)


@app.command(name="compile")
def compile_model(
    model: Annotated[Path, typer.Argument(help=".onnx, a reservoir (.safetensors, .json), or a .npy matrix.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The program to write.")],
    activation_bits: Bits = 8,
    digits: Digits = 1,
    signed: Signed = "zero_point",
    input_range: Range = 1.0,
    tolerance: Annotated[float, typer.Option(help="Models: relative error that decides the precision.")] = 0.01,
    as_json: Json = False,
) -> None:
    """Compile a matrix, or every layer of a model that an NPU can hold; several files where one is not enough."""
    if model.suffix in MODEL_SUFFIXES:
        programs, bound = model_programs(load_graph(model, input_range), tolerance)
    else:
        encoding = Encoding(activation_bits=activation_bits, digits=digits, signed=signed)
        compiled = compile_linear(output.stem, _matrix(model), encoding=encoding, ranges=input_range)
        programs, bound = compiled.programs, float(np.max(compiled.error_bound))
    several = len(programs) > 1
    paths = [output.with_stem(f"{output.stem}.{i}") if several else output for i in range(len(programs))]
    for program, path in zip(programs, paths, strict=True):
        wire.save(program, path)
    record = {"files": [str(p) for p in paths], "outputs": programs[-1].outputs, "error_bound": bound}
    if as_json:
        print_json(record)
    else:
        names = ", ".join(f"{path} ({program.name})" for program, path in zip(programs, paths, strict=True))
        print_text(f"wrote {names}: {record['outputs']} outputs, off by at most {bound:.3g}")


@app.command()
def inspect(
    program: Annotated[Path, typer.Argument(help="A .mfp program.")],
    as_json: Json = False,
) -> None:
    """Show what a program holds, and whether its sums can overflow."""
    loaded = wire.load(program)
    rows = []
    for layer in loaded.layers:
        certificate = overflow_certificate(layer)
        rows.append(
            {
                "layer": layer.name,
                "inputs": layer.inputs,
                "units": layer.units,
                "weight_bits": layer.weight_bits,
                "input_bits": layer.input_bits,
                "activation": layer.activation.value,
                "overflow": "impossible" if certificate.safe else "possible",
            }
        )
    record = {
        "name": loaded.name,
        "fingerprint": loaded.fingerprint(),
        "encoding": {
            "activation_bits": loaded.encoding.activation_bits,
            "digits": loaded.encoding.digits,
            "signed": loaded.encoding.signed,
        },
        "layers": rows,
        "heads": [{"name": h.name, "start": h.start, "width": h.width} for h in loaded.heads],
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
        print_table(
            "Heads", ("head", "start", "width"), [(repr(h.name), str(h.start), str(h.width)) for h in loaded.heads]
        )


@app.command()
def run(
    program: Annotated[Path, typer.Argument(help="A .mfp program.")],
    inputs: Annotated[Path, typer.Argument(help="A .npy array: uint8 lines, or reals for a one-layer program.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the result as .npy.")] = None,
    profile: Annotated[str, typer.Option(help="Device profile for the modelled costs.")] = "akd1000-published",
    input_range: Range = 1.0,
    as_json: Json = False,
) -> None:
    """Run a program on the emulated NPU; costs are modelled from the profile."""
    loaded, x = wire.load(program), _matrix(inputs)
    with EmulatedDevice(profile) as device:
        device.load(loaded)
        if x.dtype == np.uint8:
            result: NDArray[Any] = device.infer(x)
        else:
            ladder = ladder_of(loaded, ranges=input_range)
            result = ladder.decode(device.infer_linear(ladder.encode(x)))
        statistics = device.statistics()
    if output is not None:
        np.save(output, result, allow_pickle=False)
    if as_json:
        print_json({"result": None if output else result.tolist(), "statistics": statistics})
    else:
        print_text(f"wrote {output}" if output else np.array2string(result, threshold=200))
        print_text(f"modelled: {statistics}")


@app.command()
def explain(
    model: Annotated[Path, typer.Argument(help=".onnx, a reservoir (.safetensors, .json), .mfp, or a .npy matrix.")],
    profile: Annotated[str | None, typer.Option(help="One device profile; default: all.")] = None,
    objective: Annotated[str, typer.Option(help="Models: latency, energy, accuracy or hw_only.")] = "latency",
    policy: Annotated[str, typer.Option(help="Models: default, or seed (the thirteen-row table).")] = "default",
    host_power_w: Annotated[float | None, typer.Option(help="Models: the host's watts, for energy.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Models: fail where an op would fall back.")] = False,
    calibration: Annotated[Path | None, typer.Option(help="Models: .npy inputs to measure ranges on.")] = None,
    input_range: Range = 1.0,
    dot: Annotated[bool, typer.Option("--dot", help="Models: write the plan for Graphviz.")] = False,
    activation_bits: Bits = 8,
    digits: Digits = 1,
    signed: Signed = "zero_point",
    as_json: Json = False,
) -> None:
    """Say what runs where, why, what would make it map, and what it costs; for matrices and programs, what fits."""
    profiles = [profile] if profile else list(PROFILES)
    if model.suffix in MODEL_SUFFIXES:
        routers = [_router(policy, objective, name, host_power_w) for name in profiles]
        graph = load_graph(model, None if calibration else input_range)
        _explain_model(graph, routers, strict, calibration, "dot" if dot else "json" if as_json else "text")
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
        print_table(
            "Placement", ("layer", "processor", "bytes", "why"), [tuple(map(str, r)) for r in record["placement"]]
        )
        print_table(
            "Cost per call", ("batch", "latency", "energy"), [_cost_row(b, c) for b, c in record["costs"].items()]
        )


@app.command()
def conformance(
    programs: Annotated[int, typer.Option(help="Random programs to compare.")] = 50,
    seed: Annotated[int, typer.Option()] = 1,
    as_json: Json = False,
) -> None:
    """Compare the emulator with the vendor's SDK bit for bit, for your eyes only; needs the extra `npu`."""
    from metalforge.substrates.npu.akida_ import AkidaDevice
    from metalforge.substrates.npu.conformance import compare

    report = compare(EmulatedDevice(), AkidaDevice(), seed=seed, n=programs)
    print_json({"passed": report.ok, "failed": report.failed}) if as_json else print_text(str(report))
    if report.failed:
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


def _router(policy: str, objective: str, profile: str, host_power_w: float | None) -> "OperationRouter":
    from metalforge.hybrid.routing.router import OperationRouter

    return OperationRouter(policy, objective, profile, host_power_w=host_power_w)  # type: ignore[arg-type]  # checked there


def _explain_model(
    graph: "OpGraph", routers: list["OperationRouter"], strict: bool, calibration: Path | None, form: str
) -> None:
    """Print the plan of a model under each router."""
    data = None if calibration is None else {next(iter(graph.inputs)): _matrix(calibration)}
    plans = [router.plan(graph, strict=strict, calibration=data) for router in routers]
    if form == "json":
        print_json([plan.record for plan in plans])
        return
    for plan in plans:
        print_text(plan.to_dot()) if form == "dot" else print_plan(plan)


def _explained(program: Program, profile: str) -> dict[str, Any]:
    try:
        placement = mesh.plan(program, profile)
    except ResourceError as error:
        return {"program": program.name, "profile": profile, "refused": str(error)}
    rows = program.encoding.activation_bits // 4
    priced = {batch: costs.cost(program, batch * rows, profile) for batch in BATCHES}
    return {"program": program.name, "profile": profile, "placement": placement.rows, "costs": priced}


def _cost_row(batch: int, cost: Cost) -> tuple[str, str, str]:
    return str(batch), str(cost.latency or cost.unknown), str(cost.energy or cost.unknown)


def _matrix(path: Path) -> NDArray[Any]:
    """Read a .npy file: numbers only, never pickled objects."""
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise SpecError(f"{path} cannot be read as a .npy array of numbers: {error}") from error
    if not isinstance(values, np.ndarray) or values.ndim not in (1, 2) or values.dtype.kind not in "iuf":
        raise SpecError(f"{path} must hold one array of numbers with one or two dimensions")
    return values
