"""`bench`: runs the benchmarks of a source tree."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from metalforge.core import SpecError

from .output import Json


def bench(
    suite: Annotated[str | None, typer.Argument(help="A suite, or `all`; without it, the list of suites.")] = None,
    as_json: Json = False,
) -> None:
    """Compare speed with peers and ceilings measured in the same run; without SUITE, list the suites."""
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / "benchmarks/__main__.py").is_file()), None)
    if root is None:
        raise SpecError(
            f"no benchmarks at or above {here}: they are in the source tree, not in the installed package"
            "\nhint: run this in a clone of the repository"
        )
    sys.path.insert(0, str(root))
    from benchmarks.__main__ import bench as run

    run(suite, as_json)
