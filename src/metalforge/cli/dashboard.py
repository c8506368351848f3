"""`dashboard`: the live page on running and finished campaigns, in a browser."""

from pathlib import Path
from typing import Annotated

import typer


def dashboard(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Directories of campaigns.")],
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on; others than this machine's need --token-file.")] = (
        "127.0.0.1"
    ),
    token_file: Annotated[
        Path | None, typer.Option(help="A file with a token of your own, at least 16 characters.")
    ] = None,
    control: Annotated[bool, typer.Option("--control", help="Let the page command them: pause, stop, extend.")] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
) -> None:
    """Open a page on campaigns, running or finished: it follows them, and goes back to any record.

    It only reads, unless --control is given. The address that is printed opens it once in each browser; Ctrl-C ends it,
    and no campaign.
    """
    from metalforge.dashboard import serve

    serve(directories, host=host, port=port, token_file=token_file, browser=not no_browser, control=control)
