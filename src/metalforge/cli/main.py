"""Assembles the verbs and turns errors into messages and exit codes."""

import sys
import warnings
from typing import Annotated, NoReturn, TextIO

import typer

from metalforge import __version__
from metalforge.core.errors import KernelError, MetalforgeError, MeterUnavailableError, PlacementError, PluginError
from metalforge.core.plugins import PluginWarning
from metalforge.substrates.npu import NpuError

from . import asking, bench, conductor, experiment, lattice, machine, npu, pipeline, scan, search
from .output import print_text

__all__ = ["app", "main"]

app = typer.Typer(
    name="metalforge",
    help="Physics campaigns on whatever silicon you have.",
    epilog="Exit codes: 0 done, 1 a check failed, 2 wrong usage or input, 3 this machine cannot do it, "
    "75 a campaign was interrupted and can be resumed, 130 interrupted",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(machine.doctor)
app.command()(machine.devices)
app.command()(machine.route)
app.command()(scan.scan)
app.command()(scan.resume)
app.command()(scan.replay)
app.command()(scan.report)
app.command()(scan.watch)
app.command()(asking.presets)
app.command()(search.search)
app.command()(bench.bench)
app.add_typer(lattice.app, name="lattice")
app.add_typer(npu.app, name="npu")
app.add_typer(experiment.app, name="experiment")
app.add_typer(conductor.app, name="conductor")
app.add_typer(pipeline.app, name="pipeline")

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


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
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
