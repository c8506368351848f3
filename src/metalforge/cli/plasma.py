"""`plasma run | transport`: molecular dynamics of the screened plasma, with numbers and their errors."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from metalforge.core import SpecError

from . import running
from .output import Json, Threads, print_json, print_table, print_text
from .running import DifferentIsa, Resume, Seed, Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metalforge.campaign import DirectoryLock
    from metalforge.conductor import HeadStop
    from metalforge.native import Engine
    from metalforge.plasma import PlasmaBlock, PlasmaReplicas, PlasmaRun, PlasmaSummary, Reference

LONGEST = 20_000.0
"""Of a run that ends by its error, where no time was given: eta* is then known to 1.5 %."""
app = typer.Typer(help="Yukawa plasma: molecular dynamics.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def run(
    context: typer.Context,
    gamma: Annotated[float | None, typer.Option(help="Coupling that the warm-up aims at.")] = None,
    kappa: Annotated[float | None, typer.Option(help="Screening a / lambda, > 0.")] = None,
    particles: Annotated[int | None, typer.Option(help="How many; the box must be two cut-offs wide.")] = None,
    warmup: Annotated[float, typer.Option(help="At least, in 1/omega_p; ends when the energy is steady.")] = 100.0,
    time: Annotated[float | None, typer.Option(help="Measured, in 1/omega_p. Default 1000, or as resumed.")] = None,
    until_error: Annotated[
        float | None,
        typer.Option(help="End when D_N* and eta* have this relative error (such as 0.05), or after --time."),
    ] = None,
    heads: Annotated[bool, typer.Option("--heads", help="Let transport heads end it, where they are trusted.")] = False,
    dt: Annotated[float, typer.Option(help="Time step. Default: by gamma.")] = 0.0,
    tol: Annotated[float, typer.Option(help="Force at the cut-off, as a fraction of that between neighbours.")] = 1e-4,
    start: Annotated[str, typer.Option(help="random, bcc or fcc.")] = "random",
    precision: Annotated[str, typer.Option(help="Of pair forces: f64 or f32.")] = "f64",
    seed: Seed = 1,
    stream: Stream = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the checkpoint.")] = None,
    trace: Annotated[Path | None, typer.Option(help="One JSON line per sample.")] = None,
    resume: Resume = None,
    replicas: Annotated[int, typer.Option(min=1, help="Runs at once, on streams from --stream on; need --out.")] = 1,
    substrate: Annotated[
        str | None, typer.Option(help="auto, cpu or cuda:0. Default auto; a resumed run's is the one it began on.")
    ] = None,
    threads: Threads = None,
    allow_different_isa: DifferentIsa = False,
    as_json: Json = False,
) -> None:
    """Warm a plasma up, follow it at constant energy and summarise it; --json prints one object."""
    from metalforge.plasma import PlasmaReplicas

    with ExitStack() as held:
        if resume is not None:
            running.refuse_beside_resume(context, "time", "until_error", "heads", "substrate")
        runs = (_begun if resume is None else _resumed)(locals(), held)
        stop = _heads_of(runs) if heads else None
        finished = _run(PlasmaReplicas(runs), stop)
    if all(one.measured > 0 for one in runs):
        _show(runs, stop, as_json)
    if not finished:
        left = runs[0].job.checkpoint if len(runs) == 1 else runs[0].job.checkpoint.parent.parent
        running.end_interrupted("plasma run", f"{min(one.time for one in runs):g}/omega_p", left)


def _begun(asked: dict[str, Any], held: ExitStack) -> "list[PlasmaRun]":
    """Return new runs by the options of `run`; their folder is `held` from then on."""
    from metalforge.plasma import PlasmaJob, PlasmaRun, PlasmaSpec, replicas_of

    if missing := [name for name in ("gamma", "kappa", "particles") if asked[name] is None]:
        raise SpecError(f"a new run needs `--{missing[0]}`\nhint: --gamma 72 --kappa 1 --particles 1500")
    point = ("gamma", "kappa", "particles", "dt", "tol", "start", "precision", "seed", "stream")
    spec = msgspec.convert({name: asked[name] for name in point}, PlasmaSpec)
    out, replicas, time, until_error = (asked[name] for name in ("out", "replicas", "time", "until_error"))
    if replicas > 1 and out is None:
        raise SpecError("`--replicas` need `--out`, a folder for a folder each")
    files = {name: None if asked[name] is None else str(asked[name]) for name in ("out", "trace")}
    longest = 1000.0 if until_error is None else LONGEST
    job = PlasmaJob(warmup=asked["warmup"], time=longest if time is None else time, until_error=until_error, **files)
    if out is not None:
        held.enter_context(_alone(out))
    wanted = replicas_of(spec, job, replicas) if replicas > 1 else [(spec, job)]
    for _, one in wanted:
        running.refuse_existing(one, out if replicas > 1 else None)
    engine = _engine(asked["substrate"] or "auto", asked["threads"])
    return [PlasmaRun(its_spec, its_job, engine=engine) for its_spec, its_job in wanted]


def _resumed(asked: dict[str, Any], held: ExitStack) -> "list[PlasmaRun]":
    """Return the runs of a folder, which is `held` from then on, or of a checkpoint."""
    from metalforge.plasma import resumed

    resume, substrate, until_error = (asked[name] for name in ("resume", "substrate", "until_error"))
    if resume.is_dir():
        held.enter_context(_alone(resume))
    runs = resumed(
        resume,
        time=asked["time"],
        engine=lambda began_on: _engine(substrate or _silicon_of(began_on), asked["threads"]),
        allow_different_isa=asked["allow_different_isa"],
    )
    for one in runs:
        running.kept_trace(one.job.trace, one.particles.step // one.spec.sample_steps, one.has_sample)
        if until_error is not None:
            one.job = msgspec.structs.replace(one.job, until_error=until_error)
    return runs


def _heads_of(runs: "Sequence[PlasmaRun]") -> "HeadStop":
    """Return the heads at work on runs that end by their error."""
    from metalforge.conductor import HeadStop

    target = runs[0].job.until_error
    if target is None:
        raise SpecError("`--heads` end runs by their error\nhint: --until-error 0.05")
    stop = HeadStop(runs, target)
    if stop.why_not:
        sys.stderr.write(f"heads do not act: {stop.why_not}; the jackknife's rule ends the run\n")
    return stop


@app.command()
def transport(
    files: Annotated[list[Path], typer.Argument(help="Checkpoints of runs of one state point, or their folders.")],
    as_json: Json = False,
) -> None:
    """Diffusion and viscosity of runs that were kept, all together, with errors and what is published."""
    from metalforge.plasma import TOO_SHORT, read_replicas

    found = read_replicas(files)
    if as_json:
        print_json(found)
        return
    spec, moved = found.spec, found.transport
    print_text(
        f"Yukawa plasma, Gamma {spec.gamma:g}, kappa {spec.kappa:g}, {spec.particles} particles: {moved.runs} runs, "
        f"{found.time:g}/omega_p in all, {moved.segments} segments of {moved.segment_time:g}"
    )
    if moved.segment_time < spec.segment_blocks * spec.block_time:
        print_text(TOO_SHORT.format(spec.segment_blocks * spec.block_time))
    _table("In units of a and omega_p", msgspec.structs.asdict(moved), found.references)


def _alone(folder: Path) -> "DirectoryLock":
    """Return a hold on a folder: a second process that would write there is told who has it."""
    from metalforge.campaign import DirectoryLock

    folder.mkdir(parents=True, exist_ok=True)
    return DirectoryLock(folder)


def _engine(substrate: str, threads: int | None) -> "Engine":
    """Open silicon by its name; cores with so many threads."""
    from metalforge.campaign import engine_here
    from metalforge.native import cpu_engine

    if substrate != "cpu":
        engine = engine_here(substrate)
        if not engine.name.startswith("cpu:"):
            return engine
    return cpu_engine(threads=threads)


def _silicon_of(engine: str) -> str:
    """The substrate of an engine: cores, or a card by its number."""
    kind, number, *_ = engine.split(":")
    return kind if kind == "cpu" else f"{kind}:{number}"


def _run(together: "PlasmaReplicas", enough: "HeadStop | None" = None) -> bool:
    """Run with a progress bar and the traces the jobs ask for."""
    with ExitStack() as held:
        traces = [held.enter_context(open(run.job.trace, "a")) if run.job.trace else None for run in together.runs]
        advance, stops = held.enter_context(running.progress(together.remaining))

        def on_block(number: int, block: "PlasmaBlock") -> None:
            temperature = block.samples["kinetic"].mean() / (1.5 * together.runs[number].spec.particles)
            advance(f"{block.phase} Gamma={1 / temperature:.4g}")
            if (trace := traces[number]) is not None:
                for row in zip(*(column.tolist() for column in block.samples.values()), strict=True):
                    running.write_line(trace, {"phase": block.phase, **dict(zip(block.samples, row, strict=True))})
                trace.flush()  # a checkpoint never has more than its trace

        return together.run(should_stop=stops, on_block=on_block, enough=enough)


def _show(runs: "Sequence[PlasmaRun]", stop: "HeadStop | None", as_json: bool) -> None:
    """Print what the runs measured, and what heads had to do with their end."""
    summaries = [one.summary() for one in runs]
    weighed = None if stop is None else stop.weighed(runs)
    both = weighed and dict(zip(("diffusion_infinite", "viscosity"), weighed, strict=True))
    if as_json:
        shown = msgspec.to_builtins(summaries[0] if len(runs) == 1 else {"replicas": summaries})
        if stop is not None:
            shown["heads"] = {"acted": weighed is not None, "why_not": stop.why_not, "weighed": both}
        print_json(shown)
        return
    _show_one(summaries[0]) if len(runs) == 1 else _show_replicas(summaries)
    if both:
        rows = [(name, f"{v.mean:.6g}", f"{v.error:.2g}") for name, v in both.items()]
        print_table("With what the heads say of the window weighed in", ("observable", "mean", "error"), rows)
    elif stop is not None:
        print_text(f"heads did not act: {stop.why_not or 'their window was not over'}")


def _show_replicas(summaries: "Sequence[PlasmaSummary]") -> None:
    first = summaries[0]
    print_text(f"{len(summaries)} replicas; {first.spec.particles} particles, kappa {first.spec.kappa:g}")
    columns = ("gamma_measured", "u_over_gamma", "pressure", "diffusion", "viscosity")
    rows = [
        (
            f"{one.spec.seed}/{one.spec.stream}",
            *(f"{getattr(one, name).mean:.6g}" for name in columns),
            f"{one.energy_drift_kt:.1e}",
        )
        for one in summaries
    ]
    print_table(f"{first.time:g}/omega_p at constant energy", ("seed/stream", *columns, "energy drift, kT"), rows)
    rate = sum(one.atom_steps_per_second for one in summaries) / len(summaries)
    print_text(f"{rate:.3g} atom-steps/s together, {first.threads} threads, level {first.isa}")


def _show_one(summary: "PlasmaSummary") -> None:
    spec = summary.spec
    print_text(
        f"Yukawa plasma, Gamma {spec.gamma:g}, kappa {spec.kappa:g}, {spec.particles} particles, "
        f"r_c {spec.cutoff:.4g}, dt {spec.step_time:.4g}, seed {spec.seed}/{spec.stream}"
    )
    _table(f"{summary.time:g}/omega_p at constant energy", msgspec.structs.asdict(summary), summary.references)
    for doubt in summary.doubts:
        print_text(doubt)
    print_text(
        f"energy drifts by {summary.energy_drift_kt:.1e} kT a particle; warm-up {summary.warmup.time:g}/omega_p "
        f"({summary.warmup.reason}); {summary.atom_steps_per_second:.3g} atom-steps/s, {summary.threads} threads, "
        f"level {summary.isa}"
    )


def _table(title: str, numbers: dict[str, Any], published: "dict[str, tuple[Reference, ...]]") -> None:
    """Show the numbers that have errors, each beside what was published for the measured coupling."""
    from metalforge.statistics import Value

    rows = [
        (
            name,
            f"{v.mean:.6g}",
            "-" if v.error is None else f"{v.error:.2g}",
            "; ".join(f"{one.value:.4g} ({one.source})" for one in published.get(name, ())),
        )
        for name, v in numbers.items()
        if isinstance(v, Value)
    ]
    print_table(title, ("observable", "mean", "error", "published"), rows)
