"""`lattice generate` and `lattice measure`: chains of gauge fields, and what stored configurations hold."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from metalforge.core import SpecError

from . import running
from .output import Json, Threads, print_json, print_records, print_table, print_text
from .running import DifferentIsa, Resume, Seed, Stream

if TYPE_CHECKING:
    from metalforge.core import Row
    from metalforge.lattice import Generation, GenerationSummary

app = typer.Typer(help="SU(3) gauge fields: generate and measure.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def generate(
    context: typer.Context,
    dims: Annotated[tuple[int, int, int, int], typer.Option(help="Nx Ny Nz Nt, each even.")] = (8, 8, 8, 4),
    beta: Annotated[float, typer.Option(help="Inverse bare coupling 6/g^2.")] = 5.7,
    action: Annotated[str, typer.Option(help="Gauge action: wilson or symanzik (tree level).")] = "wilson",
    algorithm: Annotated[
        str | None, typer.Option(help="heatbath, hmc or rhmc. Default: heatbath, or what --flavors and --action need.")
    ] = None,
    warmup: Annotated[int, typer.Option(help="Updates before measurement; HMC tunes its steps here.")] = 100,
    trajectories: Annotated[int | None, typer.Option(help="Measured updates. Default 200, or as resumed.")] = None,
    seed: Seed = 1,
    stream: Stream = 0,
    start: Annotated[str, typer.Option(help="hot, cold, or a configuration file.")] = "hot",
    precision: Annotated[str, typer.Option(help="f64 or f32.")] = "f64",
    tau: Annotated[float, typer.Option(help="Trajectory length (hmc).")] = 1.0,
    integrator: Annotated[str, typer.Option(help="leapfrog, omelyan2 or omelyan4 (hmc).")] = "omelyan2",
    flavors: Annotated[
        list[str] | None, typer.Option(help="Sea quarks: 4 (exact, hmc), 1, 2, 3 (rhmc), 2+1, or one option per mass.")
    ] = None,
    mass: Annotated[list[float] | None, typer.Option(help="Their masses am, in the same order.")] = None,
    quenched: Annotated[int | None, typer.Option(help="Updates without fermions before --warmup. Default 20.")] = None,
    inner_steps: Annotated[int, typer.Option(help="Gauge steps within each move of the fermions.")] = 2,
    hasenbusch: Annotated[
        list[float] | None, typer.Option(help="Heavier masses that precondition --flavors 4.")
    ] = None,
    noise_vectors: Annotated[int, typer.Option(help="Noise vectors per measurement of the condensate.")] = 4,
    max_iterations: Annotated[int, typer.Option(help="A solve that takes more is an error.")] = 10_000,
    out: Annotated[Path | None, typer.Option(help="Folder for configurations and the checkpoint.")] = None,
    file_format: Annotated[str, typer.Option("--format", help="nersc, ildg or hdf5.")] = "hdf5",
    observable: Annotated[
        list[str] | None, typer.Option(help="Measure this as well, e.g. wilson_loop; may be given more than once.")
    ] = None,
    save_every: Annotated[int, typer.Option(help="Keep every n-th configuration; 0: the last.")] = 0,
    trace: Annotated[Path | None, typer.Option(help="One JSON line per update.")] = None,
    resume: Resume = None,
    threads: Threads = None,
    allow_different_isa: DifferentIsa = False,
    as_json: Json = False,
) -> None:
    """Run a Markov chain of gauge fields and summarise it; --json prints one object."""
    from metalforge.lattice import Generation

    if resume is None:
        run = _begun(locals())
    else:
        running.refuse_beside_resume(context, "trajectories")
        run = Generation.resume(
            resume, trajectories=trajectories, threads=threads, allow_different_isa=allow_different_isa
        )
        done = run.chain.step
        running.kept_trace(
            run.job.trace, done, lambda line: {"phase", "step", "plaquette"} <= line.keys() and 0 < line["step"] <= done
        )
    finished = _run(run)
    if run.measured > 0:
        summary = run.summary()
        print_json(summary) if as_json else _show_summary(summary)
    if not finished:
        running.end_interrupted("lattice generate", f"{run.measured} measurements", run.job.checkpoint)


def _begun(asked: dict[str, Any]) -> "Generation":
    """Return a new run by the options of `generate`."""
    from metalforge.lattice import Chain, ChainSpec, GaugeField, Generation, Job, read_links
    from metalforge.lattice import action as named_action

    fermions, sweeps = _fermions(asked), named_action(asked["action"]).sweeps
    start, threads = asked["start"], asked["threads"]
    plain = {name: asked[name] for name in ("dims", "beta", "action", "seed", "stream", "precision")}
    chosen = {
        "algorithm": asked["algorithm"] or _default_algorithm(fermions, sweeps),
        "start": start if start in ("hot", "cold") else "file",
        "hmc": {"tau": asked["tau"], "integrator": asked["integrator"]},
        "fermions": fermions,
    }
    spec = msgspec.convert(plain | chosen, ChainSpec)
    quenched, trajectories, out, trace = (asked[name] for name in ("quenched", "trajectories", "out", "trace"))
    run_for = {
        "warmup": asked["warmup"],
        "quenched": (20 if fermions and sweeps else 0) if quenched is None else quenched,
        "trajectories": 200 if trajectories is None else trajectories,
        "out": None if out is None else str(out),
        "format": asked["file_format"],
        "save_every": asked["save_every"],
        "observables": tuple(asked["observable"] or ()),
        "trace": None if trace is None else str(trace),
    }
    job = msgspec.convert(run_for, Job)
    running.refuse_existing(job)
    field = None
    if spec.start == "file":
        field = GaugeField.from_links(read_links(Path(start)).links, precision=spec.precision, threads=threads)
    return Generation(Chain(spec, field=field, threads=threads), job)


@app.command(name="measure")
def measure_files(
    files: Annotated[list[Path], typer.Argument(help="Configurations: NERSC, ILDG, HDF5, MILC or openQCD.")],
    flow: Annotated[float, typer.Option(min=0, help="Also flow to this time: t0, w0, Q.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Measure stored configurations: plaquette, Polyakov loop and, with --flow, the scales of the gradient flow."""
    from metalforge.lattice import GaugeField, gradient_flow, measure, read_links, scale_t0, scale_w0

    records = []
    for path in files:
        loaded = read_links(path)
        field = GaugeField.from_links(loaded.links)
        observed = measure(field)
        record: dict[str, Any] = {
            "file": str(path),
            "format": loaded.format,
            "dims": list(loaded.dims),
            **msgspec.structs.asdict(observed),
            "polyakov_abs": abs(observed.polyakov),
        }
        if flow > 0:
            points = gradient_flow(field, flow)
            record |= {"t0": scale_t0(points), "w0": scale_w0(points), "charge": points[-1].charge}
        records.append(record)
    columns = [key for key in records[0] if key != "dims"]
    rows = [[f"{r[c]:.8g}" if isinstance(r[c], float) else str(r[c]) for c in columns] for r in records]
    print_records(as_json, records, "Configurations", columns, rows)


def _fermions(asked: dict[str, Any]) -> dict[str, Any] | None:
    """Return sea quarks by the options, or None for the quenched theory; one mass goes for all of `2+2`."""
    flavors, masses, heavier = asked["flavors"], asked["mass"], asked["hasenbusch"]
    if not flavors:
        if masses or heavier:
            raise SpecError("`--mass` and `--hasenbusch` belong to sea quarks\nhint: add `--flavors 4`")
        return None
    try:
        numbers = [int(n) for text in flavors for n in text.split("+")]
    except ValueError:
        raise SpecError(f"`--flavors` must be numbers, e.g. 4, 2 or 2+1. Got {' '.join(flavors)}") from None
    if not masses:
        raise SpecError("sea quarks need their masses\nhint: add `--mass 0.1`")
    return {
        "flavors": numbers,
        "masses": masses * len(numbers) if len(masses) == 1 else masses,
        "n_inner": asked["inner_steps"],
        "preconditioners": heavier or [],
        "noise_vectors": asked["noise_vectors"],
        "max_iterations": asked["max_iterations"],
    }


def _default_algorithm(fermions: dict[str, Any] | None, sweeps: bool) -> str:
    if fermions is None:
        return "heatbath" if sweeps else "hmc"
    return "hmc" if all(n == 4 for n in fermions["flavors"]) else "rhmc"


def _run(run: "Generation") -> bool:
    """Run with a progress bar and the trace the job asks for."""
    with ExitStack() as held:
        trace = held.enter_context(open(run.job.trace, "a")) if run.job.trace else None
        advance, stops = held.enter_context(running.progress(run.remaining))

        def on_update(row: "Row") -> None:
            advance(f"{row.phase} P={row.values['plaquette']:.5f}")
            if trace is not None:
                seen: dict[str, Any] = {name: row.values.get(name) for name in run.series}
                seen["accepted"] = None if seen["accepted"] is None else bool(seen["accepted"])
                seen["cg_iterations"] = seen.get("cg_total")
                running.write_line(trace, {"phase": row.phase, "step": row.update + 1, **seen})

        return run.run(should_stop=stops, on_update=on_update)


def _show_summary(summary: "GenerationSummary") -> None:
    from metalforge.statistics import Value

    spec, sea = summary.spec, ""
    if spec.fermions is not None:
        quarks = zip(spec.fermions.flavors, spec.fermions.masses, strict=True)
        sea = ", " + " + ".join(f"{n} flavours of am {m:g}" for n, m in quarks)
    print_text(
        f"{'x'.join(map(str, spec.dims))}, {spec.action} action, beta {spec.beta}{sea}, {spec.algorithm}, "
        f"seed {spec.seed}/{spec.stream}"
    )
    values = msgspec.structs.asdict(summary) | summary.observables
    rows = [
        (name, f"{v.mean:.7g}", *("-" if x is None else f"{x:.3g}" for x in (v.error, v.tau_int)))
        for name, v in values.items()
        if isinstance(v, Value)
    ]
    print_table(f"{summary.n_measurements} measurements", ("observable", "mean", "error", "tau_int"), rows)
    steps = f", {spec.hmc.n_steps} steps of {spec.hmc.integrator}" if spec.has_trajectories else ""
    print_text(
        f"{summary.updates_per_second:.3g} updates/s measured, {summary.threads} threads, level {summary.isa}{steps}"
    )
