"""The command line: verbs over the rooms below, no logic of its own.

Data goes to stdout, talk to stderr; ``--json`` gives records; tables are drawn on a terminal and plain text when piped.

Exit codes: 0 done; 1 a check failed; 2 wrong usage or input; 3 this machine cannot do it; 130 interrupted.
"""

from .main import main

__all__ = ["main"]
