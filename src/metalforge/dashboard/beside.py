"""The page beside a campaign that begins: a process of its own, so that the campaign's is left to its chains."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread

from .helpers import end_with_parent
from .opening import serve

LONGEST_S = 30.0
"""That the page may take to answer before the campaign goes on without its address."""


@contextmanager
def page_beside(directory: Path, *, stay: bool) -> Iterator[None]:
    """Serve the page on a campaign meanwhile, and say on stderr how it is opened before anything else is said.

    After a campaign that ended well it may `stay` until Ctrl-C: whoever looks at it is not shut out.
    """
    context = get_context("spawn")  # a copy of this process would hold its locks and devices
    hear, say = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(directory, say))
    process.start()
    say.close()
    try:
        with suppress(EOFError):
            if hear.poll(LONGEST_S):
                sys.stderr.write(hear.recv())
        yield
        if stay and process.is_alive():
            sys.stderr.write("the live page stays open until Ctrl-C\n")
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with suppress(KeyboardInterrupt):
                process.join()
    finally:
        process.terminate()
        process.join()
        hear.close()


def _serve(directory: Path, said: Connection) -> None:
    """Serve in a process of its own, which ends with its parent however that ends."""
    Thread(target=end_with_parent, daemon=True).start()
    serve([directory], say=said.send)
