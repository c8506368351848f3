"""Assembles the verbs and turns errors into messages and exit codes."""

import re
import sys
import warnings
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from metalforge import __version__
from metalforge.core import PluginWarning, SpecError, escaped, load_files

from .guard import EXIT_CODES, guarded
from .output import lossy_streams, print_text

VERBS = {
    **dict.fromkeys(("doctor", "devices", "route"), "machine"),
    **dict.fromkeys(("scan", "resume", "replay", "report", "watch", "presets"), "scan"),
    "attach": "far",
    **{name: name for name in ("control", "dashboard", "search", "bench")},
}
"""Verbs, and the module that has each."""
ROOMS = ("lattice", "plasma", "npu", "conductor", "pipeline", "cluster")
"""Modules with several verbs behind their name."""


def _print_version(wanted: bool) -> None:
    if wanted:
        print_text(f"metalforge {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error comes from; anywhere on the line.")
    ] = False,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(help="A Python file with a theory, steerer or observable, which is run; anywhere on the line."),
    ] = None,
) -> None:
    """Take the options that stand before a verb; each does its work elsewhere."""


@cache
def assembled(verb: str = "") -> typer.Typer:
    """Return the command line: with one verb or room alone, if it is known, so that no other's modules are loaded."""
    app = typer.Typer(
        name="metalforge",
        help="Physics campaigns on whatever silicon you have.",
        epilog=EXIT_CODES,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_options)
    known = verb in VERBS or verb in ROOMS
    for name, module in VERBS.items():
        if not known or name == verb:
            app.command()(getattr(import_module(f".{module}", __package__), name))
    for name in ROOMS:
        if not known or name == verb:
            app.add_typer(import_module(f".{name}", __package__).app, name=name)
    return app


def __getattr__(name: str) -> typer.Typer:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return assembled()


def _show_warning(message: Warning | str, *where: object, **more: object) -> None:
    """Show what a user needs of a warning, in place of `warnings.showwarning`."""
    sys.stderr.write(escaped(f"warning: {message}\n", lines=True))


def _plugins_apart(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments without ``--plugin FILE``, and the files."""
    rest: list[str] = []
    files: list[str] = []
    given = iter(arguments)
    for argument in given:
        name, equals, file = argument.partition("=")
        if name != "--plugin":
            rest.append(argument)
            continue
        if not (file := file if equals else next(given, "")):
            raise SpecError("`--plugin` needs a file\nhint: --plugin FILE.py")
        files.append(file)
    return rest, files


def _called(arguments: list[str]) -> int:
    """Run what the arguments ask for and return the exit code."""
    arguments, plugins = _plugins_apart(arguments)
    load_files(plugins)
    for before, argument in pairwise(["", *arguments]):
        if not argument or re.fullmatch("--[a-z-]+=", argument):
            name = argument.removesuffix("=") or before
            raise SpecError(f"what `{name}` is followed by is empty\nhint: a variable of the shell may be unset")
    try:
        assembled(*arguments[:1])(arguments, prog_name="metalforge")
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
