"""Assembles the verbs and turns errors into messages and exit codes."""

import sys
import warnings
from typing import Annotated, NoReturn

import typer

from metalforge import __version__
from metalforge.core.errors import KernelError, MetalforgeError, MeterUnavailableError, PlacementError, PluginError
from metalforge.core.plugins import PluginWarning
from metalforge.substrates.npu import NpuError

from . import bench, conductor, experiment, lattice, machine, npu, pipeline, scan, search
from .output import print_text

app = typer.Typer(
    name="metalforge",
    help="Physics campaigns on whatever silicon you have.",
    epilog="Exit codes: 0 done, 1 a check failed, 2 wrong usage or input, 3 this machine cannot do it, "
    "75 a campaign was interrupted and can be resumed, 130 interrupted",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _verb in (
    *(machine.doctor, machine.devices, machine.route),
    *(scan.scan, scan.resume, scan.replay, scan.report, scan.watch, scan.presets),
    *(search.search, bench.bench),
):
    app.command()(_verb)
for _room in (lattice, npu, experiment, conductor, pipeline):
    app.add_typer(_room.app, name=_room.__name__.rsplit(".", 1)[-1])

_CANNOT = (KernelError, PlacementError, MeterUnavailableError, PluginError, NpuError)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_text(f"metalforge {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before a verb; each does its work in a callback of its own."""


def _show_warning(message: Warning | str, *where: object, **more: object) -> None:
    """Show what a user needs of a warning, in place of `warnings.showwarning`."""
    sys.stderr.write(f"warning: {message}\n")


def main() -> NoReturn:
    """Run the command line and exit."""
    warnings.showwarning = _show_warning
    warnings.simplefilter("once", PluginWarning)
    try:
        app(prog_name="metalforge")
        code = 0
    except MetalforgeError as error:
        sys.stderr.write(f"error: {error}\n")
        code = 3 if isinstance(error, _CANNOT) else 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        code = 130
    sys.exit(code)
