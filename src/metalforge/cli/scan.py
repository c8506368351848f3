"""`scan | resume | replay | report | watch | presets`: the main job, going on with it, and looking at it."""

import shlex
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .guard import AGAIN, is_fault
from .output import Json, lost, print_json, print_records, print_text

if TYPE_CHECKING:
    from metalforge.campaign import Campaign, CampaignSpec, CampaignState, Counterfactual, Extension, Results
    from metalforge.cluster import Outcome

SYSTEMS = "A system: a lattice x,y,z,t as in 12,12,12,4, the particles of a plasma's box; may be given several times."
SUBSTRATES = "Where chains run: auto, all, cpu or a name such as cuda:0."
PLACES = "Where checkpoints go: file:///shared/path, s3://bucket/prefix, gs://bucket/prefix, or '' for the directory."
CLUSTERS = "Machines that chains run on, with Ray: auto, ray://HOST:10001, HOST:PORT, local:3x2 (here)."
COUPLINGS = "Couplings that every system visits first, as in 5.68,5.70: beta of a lattice, Gamma of a plasma."
WIDEN = "Let the range grow to hold couplings outside it, which are refused otherwise."


def asked(options: Mapping[str, Any]) -> "Extension":
    """Return what the options of a verb ask for, by their names."""
    from metalforge.campaign import Extension, couplings_of, system_of

    coupling, remove = options["coupling"], options.get("remove")
    plain = {name: options[name] for name in Extension.__struct_fields__ if name in options}
    parsed: dict[str, Any] = {
        "systems": tuple(system_of("--system", text) for text in options["system"] or ()),
        "couplings": () if coupling is None else couplings_of("--coupling", coupling),
        "remove": () if remove is None else couplings_of("--remove", remove),
    }
    return Extension(**plain | parsed)


def presets(as_json: Json = False) -> None:
    """List the presets of `scan`: their lattices, range and budget, and what they are for."""
    from metalforge.campaign import budget_text, preset, system_name
    from metalforge.campaign import presets as shipped

    known = [(name, about, preset(name)) for name, about in shipped().items()]
    records = [
        {
            "name": name,
            "about": about,
            "systems": spec.theory.systems,
            "coordinate": spec.theory.coordinate,
            "low": spec.theory.low,
            "high": spec.theory.high,
            "budget": spec.budget,
            "deterministic": spec.running.deterministic,
        }
        for name, about, spec in known
    ]
    rows = [
        (
            name,
            ", ".join(system_name(dims) for dims in spec.theory.systems),
            f"{spec.theory.coordinate} {spec.theory.low:.4g} to {spec.theory.high:.4g}",
            budget_text(spec),
            about,
        )
        for name, about, spec in known
    ]
    columns = ("name", "of", "along", "budget", "what it is")
    print_records(as_json, records, "presets: metalforge scan --preset NAME", columns, rows)


def _refused(option: str, text: str, wanted: str) -> Exception:
    from metalforge.core import SpecError

    return SpecError(f"`{option}` must be {wanted}. Got {text}")


Directory = Annotated[Path, typer.Argument(help="The campaign's directory.")]
Beside = Annotated[
    list[Path] | None,
    typer.Option("--beside", help="A campaign to compare it with, in one figure; several may be given."),
]


def page_hint(directory: Path) -> str:
    """Return the line that says how the live page is opened on a campaign, as this command was called."""
    called = Path(sys.argv[0])
    command = str(called) if called.name == "metalforge" and shutil.which("metalforge") is None else "metalforge"
    return f"live page: {shlex.quote(command)} dashboard {shlex.quote(str(directory))}"


def live_page(directory: Path, wanted: bool, as_json: bool) -> AbstractContextManager[None]:
    """Return a block beside which the live page is served, where it is wanted."""
    if not wanted:
        return nullcontext()
    from metalforge.dashboard import page_beside

    return page_beside(directory, stay=sys.stderr.isatty() and not as_json)


def _presets(incomplete: str) -> list[str]:
    """Return the names of presets that a shell may complete."""
    from metalforge.campaign import presets

    return [name for name in presets() if name.startswith(incomplete)]


def scan(
    spec: Annotated[Path | None, typer.Argument(help="A spec in TOML; without one, a preset.")] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="A preset instead of a spec, demo if there is neither.", autocompletion=_presets),
    ] = None,
    ordering: Annotated[str | None, typer.Option(help="A, B, C, D, E or their names, or auto.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where everything goes; a new directory.")] = None,
    energy: Annotated[str | None, typer.Option(help="measured or modelled joules, to compare orderings.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Budget: seconds of compute.")] = None,
    trajectories: Annotated[int | None, typer.Option(help="Budget: updates of all chains.")] = None,
    target_error: Annotated[
        float | None, typer.Option(help="Error of the result at which it is done, in units of the coordinate.")
    ] = None,
    system: Annotated[list[str] | None, typer.Option(help=f"{SYSTEMS} They replace those of the spec.")] = None,
    coupling: Annotated[str | None, typer.Option(help=COUPLINGS)] = None,
    widen: Annotated[bool, typer.Option("--widen", help=WIDEN)] = False,
    checkpoints: Annotated[str | None, typer.Option(help=PLACES)] = None,
    substrate: Annotated[str | None, typer.Option(help=SUBSTRATES)] = None,
    cluster: Annotated[str | None, typer.Option(help=CLUSTERS)] = None,
    weights: Annotated[Path | None, typer.Option(help="Weights of the heads, as `conductor adopt` writes.")] = None,
    observable: Annotated[
        list[str] | None,
        typer.Option(help="An observable to measure besides, by name; may be given several times."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Leave it to the cluster; `attach` comes back.")] = False,
    live: Annotated[bool, typer.Option("--live", help="Serve the live page beside it, for a browser.")] = False,
    print_spec: Annotated[bool, typer.Option("--print-spec", help="Write the spec, commented, and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Find a phase transition, or map a plasma: a steered scan on all silicon at once, with a report at the end.

    Options take the place of what the spec or the preset says (metalforge presets lists those).
    """
    options = locals()
    from metalforge.campaign import Campaign, asked_beside, spec_text

    wanted = asked_beside(_spec(options), asked(options))
    if print_spec:
        print_text(spec_text(wanted))
        return
    directory = out or Path(f"{wanted.folder}-{time.strftime('%Y%m%d-%H%M%S')}")
    if wanted.running.cluster:
        from .far import scan_far

        if live and detach:
            raise _refused("--live", "--detach", "without --detach: `metalforge dashboard` follows what is left alone")
        scan_far(wanted, directory, detach=detach, live=live, as_json=as_json)
        return
    if detach:
        raise _refused("--detach", "no --cluster", "beside --cluster: without one the campaign runs in this process")
    with Campaign.open(wanted, directory, command=("metalforge", *sys.argv[1:])) as campaign:
        for fact in wanted.theory.report.known(wanted):
            sys.stderr.write(f"known: {fact}\n")
        with live_page(directory, live, as_json):
            _run(campaign, as_json)


def resume(
    directory: Directory,
    seconds: Annotated[float | None, typer.Option(help="Seconds of compute, added to the limit.")] = None,
    trajectories: Annotated[int | None, typer.Option(help="Updates, added to the limit.")] = None,
    target_error: Annotated[float | None, typer.Option(help="Another error of the result at which it is done.")] = None,
    system: Annotated[list[str] | None, typer.Option(help=f"{SYSTEMS} They are added.")] = None,
    coupling: Annotated[str | None, typer.Option(help=COUPLINGS)] = None,
    widen: Annotated[bool, typer.Option("--widen", help=WIDEN)] = False,
    remove: Annotated[str | None, typer.Option(help="Couplings at which no more visits are planned.")] = None,
    steerer: Annotated[str | None, typer.Option(help="Another steerer from here on.")] = None,
    checkpoints: Annotated[str | None, typer.Option(help=PLACES)] = None,
    substrate: Annotated[str | None, typer.Option(help=SUBSTRATES)] = None,
    cluster: Annotated[str | None, typer.Option(help=CLUSTERS)] = None,
    as_json: Json = False,
) -> None:
    """Go on with a campaign that was interrupted or killed, or extend one, finished or not.

    --seconds and --trajectories are added to the limits, or without such a limit to what was spent until now. The limit
    that ended it is lifted unless it is extended. A deterministic campaign takes no --seconds. The journal records what
    was asked.
    """
    more = asked(locals())
    from metalforge.campaign import Campaign, budget_text

    if there := _cluster_of(directory, cluster):
        from .far import resume_far

        resume_far(directory, there, more, as_json=as_json)
        return
    with Campaign.resume(directory, more=more, command=("metalforge", *sys.argv[1:])) as campaign:
        if campaign.message:
            sys.stderr.write(campaign.message + "\n")
        if campaign.state.finished is not None:
            note_finished(campaign.state, directory)
        elif more.asks:
            sys.stderr.write(f"now ends at {budget_text(campaign.spec)}\n")
        _run(campaign, as_json)


def note_finished(state: "CampaignState", directory: Path) -> None:
    """Say that a campaign that was resumed is finished, and how it is extended."""
    from metalforge.campaign import ENDINGS

    option = "--trajectories 10000" if state.spec.running.deterministic else "--seconds 600"
    ending = ENDINGS[state.stopped_by] if state.stopped_by is not None else ""
    sys.stderr.write(f"the campaign is finished: {ending}\nhint: metalforge resume {directory} {option} extends it\n")


def _cluster_of(directory: Path, asked: str | None) -> str:
    """Return the cluster that a campaign goes on with: what is asked for, else what it has run on.

    The plug-ins that its spec names are loaded, as `scan` loads those of any spec that it is given.
    """
    from metalforge.campaign import load_spec
    from metalforge.core import SpecError

    try:
        there = load_spec(directory / "spec.toml").running.cluster
    except SpecError:
        there = ""  # whoever resumes says what is wrong with the directory
    return there if asked is None else asked


def replay(
    directory: Directory,
    without: Annotated[str | None, typer.Option(help="heads: what baselines alone would have decided, too.")] = None,
    steerer: Annotated[str | None, typer.Option(help="What another steerer would have done.")] = None,
    at: Annotated[int | None, typer.Option(min=1, help="With --steerer: from this record of the journal on.")] = None,
    as_json: Json = False,
) -> None:
    """Derive the result again from the journal alone; --without heads sets its decisions beside those of baselines.

    --steerer NAME says where another steerer would have measured, and what that is worth. Nothing is run: what would
    have followed from another decision is modelled, and marked so.
    """
    from metalforge import campaign

    if steerer is not None:
        if without is not None:
            raise _refused("--without", without, "left out beside --steerer")
        _say_steered(campaign.load(directory).steered_by(steerer, at or 1), as_json)
        return
    if at is not None:
        raise _refused("--at", str(at), "beside --steerer")
    if without is None:
        _say(campaign.load(directory), as_json)
        return
    if without != "heads":
        raise _refused("--without", without, "heads")
    from metalforge.campaign import one_line

    found = campaign.load(directory).without_heads()
    rows = [
        (
            entry.what,
            entry.chain or "-",
            entry.head,
            "yes" if entry.trusted else "no",
            _number(entry.decided, entry.unit),
            _number(entry.baseline, entry.unit),
            "other, modelled" if entry.differs else "the same",
            one_line(entry.text),
        )
        for entry in found["decisions"]
    ]
    columns = ("decision", "chain", "head", "taken", "decided", "baseline", "outcome", "what the baseline says")
    print_records(as_json, found, f"decisions with heads, and without: {directory}", columns, rows)
    if not as_json:
        print_text(f"{found['different']} of {len(rows)} decisions would have been others; {found['note']}")


def _say_steered(found: "Counterfactual", as_json: bool) -> None:
    """Print where another steerer would have measured, and what its visits are worth."""
    from metalforge.campaign import number_text, one_line, system_name

    visits = [
        (
            f"{visit.seconds:.1f}",
            system_name(visit.system),
            f"{visit.was:.5g}",
            "-" if visit.coordinate is None else f"{visit.coordinate:.5g}",
            "measured" if visit.exact else "modelled",
            one_line(visit.reason),
        )
        for visit in found.visits
    ]
    columns = ("s", "system", f"point, {found.own}", f"point, {found.steerer}", "by outcomes", "why")
    print_records(as_json, found, f"visits from record {found.at} on", columns, visits)
    if as_json:
        return
    for volume in found.systems:
        said = volume.reason
        if not said:
            error = "no chain near it" if volume.other_error is None else f"an error of {volume.other_error:.2g}"
            said = (
                f"{number_text(volume.result, volume.error)} with {volume.was:.3g} effective samples there, "
                f"measured; {error} with {volume.other:.3g} by {found.steerer}, modelled"
            )
        print_text(f"{system_name(volume.system)}: {said}")
    again = f"{found.own}, worked out in the same way, decides {found.own_again} of {len(found.visits)} as it did"
    print_text(f"{again}; {found.note}")


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.6g} {unit}".rstrip()


def report(directory: Directory, beside: Beside = None, as_json: Json = False) -> None:
    """Write the report of a campaign, finished or not: one HTML page and its figures."""
    from metalforge import campaign

    found = campaign.load(directory)
    path = found.report(beside=[campaign.load(other) for other in beside or ()])
    if as_json:
        print_json({"report": str(path), "heads": found.heads})
    else:
        print_text(str(path))


def watch(directory: Directory, as_json: Json = False) -> None:
    """Show a campaign as its journal tells it, live while it runs. If its process was killed, the exit code is 75."""
    from metalforge.campaign import JOURNAL, Interrupted, JournalFollower, fold, may_be_in_use, view_of
    from metalforge.core import SpecError

    from .live import LiveView

    follower = JournalFollower(directory / JOURNAL)
    seen = follower.poll()
    if not seen:
        raise SpecError(f"{directory}: no campaign is there\nhint: metalforge scan --out {directory} begins one")
    state = fold(seen)
    if as_json:
        print_json(view_of(state, state.last_at))
        return
    last = seen[-1]
    with LiveView() as live:
        while True:
            view = view_of(state, time.time() if state.finished is None else state.last_at)
            live.show(view)
            if state.finished is not None or isinstance(last, Interrupted):
                return
            live.wait()
            if lost(sys.stderr) is not None:
                raise typer.Exit(AGAIN)  # nobody looks any more
            killed = view.status == "silent" and not may_be_in_use(directory)
            seen = follower.poll()
            for record in seen:
                state.apply(record)
                last = record
            if killed and not seen:
                break
    sys.stderr.write(f"the process of this campaign is gone; go on with: {resuming(directory)}\n")
    raise typer.Exit(AGAIN)


def _spec(options: Mapping[str, Any]) -> "CampaignSpec":
    """Return the spec of a file or a preset, with what the options of `scan` change."""
    import msgspec

    from metalforge.campaign import converted, load_spec, preset
    from metalforge.core import SpecError, loaded_files

    path, name = options["spec"], options["preset"]
    if path is not None and name is not None:
        raise SpecError(f"a spec or a preset is wanted. Got both, {path} and `{name}`\nhint: leave one of them out")
    plain = msgspec.to_builtins(preset(name or "demo") if path is None else load_spec(path))
    plain |= {key: value for key in ("ordering", "seed") if (value := options[key]) is not None}
    if (energy := options["energy"]) is not None:
        plain["running"]["energy"] = energy
    if (weights := options["weights"]) is not None:
        plain["screening"]["weights"] = str(weights)
    plain["theory"]["observables"] = [*plain["theory"]["observables"], *(options["observable"] or ())]
    plain["plugins"] = loaded_files()
    return converted(plain)


def _run(campaign: "Campaign", as_json: bool) -> None:
    """Run with a live view; end by its result, or with the exit code of an interruption."""
    from metalforge.campaign import Results

    from .live import LiveView

    if campaign.state.finished is None:
        for caution in campaign.spec.theory.report.cautions(campaign.spec):
            sys.stderr.write(f"note: {caution}\n")

    def stop(number: int, frame: FrameType | None) -> None:
        campaign.interrupt(signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        signal.signal(number, stop)
    sys.stderr.write(f"campaign in {campaign.directory}\n{page_hint(campaign.directory)}\n")
    try:
        with nullcontext() if as_json else LiveView(campaign.view):
            state = campaign.run()
    except Exception as error:
        if campaign.state.finished is None:
            note_what_is_kept(error, campaign.directory)
        raise
    if state.finished is None:
        sys.stderr.write(f"interrupted ({state.interrupted[-1].reason}); go on with: {resuming(campaign.directory)}\n")
        raise typer.Exit(AGAIN)
    found = Results(state, campaign.directory)
    found.report()
    _say(found, as_json)


def resuming(directory: Path) -> str:
    """Return the command that goes on with a campaign of this process."""
    from metalforge.core import with_plugins

    return with_plugins(f"metalforge resume {directory}")


def note_what_is_kept(error: Exception, directory: Path) -> None:
    """Add to the error of a campaign how to go on with what its journal has, and what a report of a fault needs."""
    from metalforge.campaign import JOURNAL, begun

    if not begun(directory / JOURNAL):
        return
    error.add_note(f"hint: what was done is kept; go on with: {resuming(directory)}")
    if is_fault(error):
        error.add_note(f"hint: attach {directory} to the report")


def _say(found: "Results | Outcome", as_json: bool) -> None:
    """Print what a campaign found."""
    if as_json:
        print_json(found.summary)
        return
    for line in found.said:
        print_text(line)
