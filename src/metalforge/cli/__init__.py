"""The command line: verbs over the rooms below, no logic of its own.

Data goes to stdout, talk to stderr; ``--json`` gives records; tables are drawn on a terminal and plain text when piped.

Whatever fails is one line and an exit code (`guard.EXIT_CODES`); ``--debug`` shows the traceback.
"""

from .main import main

__all__ = ["main"]
