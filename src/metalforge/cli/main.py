"""Assembles the verbs and turns errors into messages and exit codes."""

import re
import sys
import warnings
from itertools import pairwise
from typing import Annotated, NoReturn

import typer

from metalforge import __version__
from metalforge.core.errors import SpecError
from metalforge.core.escapes import escaped
from metalforge.core.plugins import PluginWarning

from . import bench, cluster, conductor, dashboard, experiment, far, lattice, machine, npu, pipeline, scan, search
from .guard import EXIT_CODES, guarded
from .output import print_text
from .streams import lossy_streams

app = typer.Typer(
    name="metalforge",
    help="Physics campaigns on whatever silicon you have.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _verb in (
    *(machine.doctor, machine.devices, machine.route),
    *(scan.scan, scan.resume, scan.replay, scan.report, scan.watch, scan.presets, far.attach),
    dashboard.dashboard,
    *(search.search, bench.bench),
):
    app.command()(_verb)
for _room in (lattice, npu, experiment, conductor, pipeline, cluster):
    app.add_typer(_room.app, name=_room.__name__.rsplit(".", 1)[-1])

cluster.app.command()(far.leave)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_text(f"metalforge {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error comes from; anywhere on the line.")
    ] = False,
) -> None:
    """Take the options that stand before a verb; each does its work elsewhere."""


def _show_warning(message: Warning | str, *where: object, **more: object) -> None:
    """Show what a user needs of a warning, in place of `warnings.showwarning`."""
    sys.stderr.write(escaped(f"warning: {message}\n", lines=True))


def _called(arguments: list[str]) -> int:
    """Run what the arguments ask for and return the exit code."""
    for before, argument in pairwise(["", *arguments]):
        if not argument or re.fullmatch("--[a-z-]+=", argument):
            name = argument.removesuffix("=") or before
            raise SpecError(f"what `{name}` is followed by is empty\nhint: a variable of the shell may be unset")
    try:
        app(arguments, prog_name="metalforge")
    except SystemExit as ended:  # how typer returns, also after a usage that it refused
        return ended.code if isinstance(ended.code, int) else 0
    return 0


def main() -> NoReturn:
    """Run the command line and exit."""
    warnings.showwarning = _show_warning
    warnings.simplefilter("once", PluginWarning)
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    with lossy_streams():
        code = guarded(lambda: _called(arguments), debug="--debug" in sys.argv)
    sys.exit(code)
