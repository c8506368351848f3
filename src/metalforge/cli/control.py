"""`control`: commands to a campaign that runs, for scripts and for machines without a browser."""

from typing import Annotated

import typer

from .guard import WRONG
from .output import Json, print_json, print_text
from .scan import WIDEN, Directory


def _commands(incomplete: str) -> list[str]:
    """Return the commands that a shell may complete."""
    from metalforge.campaign import FIELDS

    return [name for name in FIELDS if name.startswith(incomplete)]


def control(
    directory: Directory,
    what: Annotated[
        str,
        typer.Argument(
            help="pause, resume, stop, extend, steerer, system, coupling, remove or rewire.", autocompletion=_commands
        ),
    ],
    value: Annotated[
        str | None,
        typer.Argument(
            help="Of steerer: its name; system: x,y,z,t or particles; coupling, remove: a,b,...; "
            "rewire: before, beside, auto."
        ),
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="extend: seconds of compute, added to the limit.")] = None,
    trajectories: Annotated[int | None, typer.Option(help="extend: updates, added to the limit.")] = None,
    target_error: Annotated[float | None, typer.Option(help="extend: another target error to end at.")] = None,
    widen: Annotated[bool, typer.Option("--widen", help=f"coupling: {WIDEN[0].lower()}{WIDEN[1:]}")] = False,
    as_json: Json = False,
) -> None:
    """Tell a running campaign to pause, go on, stop, or do more; it answers, and writes both in its journal.

    `extend`, `system`, `coupling`, `remove` and `steerer` do what the options of `resume` do, without stopping it.
    """
    from metalforge.campaign import FIELDS, command
    from metalforge.core import SpecError, find

    options = {"seconds": seconds, "trajectories": trajectories, "target_error": target_error, "widen": widen or None}
    asked: dict[str, object] = {name: value for name, value in options.items() if value is not None}
    fields = find("command", what, {str(name): fields for name, fields in FIELDS.items()})
    if value is not None:
        if what == "extend" or not fields:
            raise SpecError(f"`{what}` takes no value. Got {value}\nhint: metalforge control --help")
        asked[fields[0]] = value
    answer = command(directory, what, through="command line", **asked)
    if as_json:
        print_json(answer)
    elif answer.accepted:
        print_text(answer.said)
    else:
        raise SpecError(f"refused: {answer.said}")
    if not answer.accepted:
        raise typer.Exit(WRONG)
