"""The command line inside the test's own process: what a shell would see, without a new interpreter for each line."""

import contextlib
import io
import sys
import warnings
from types import SimpleNamespace
from unittest import mock

from experiments import __main__ as experiments
from metalforge.cli import main


def run(*arguments, cwd, program=main):
    """Run `metalforge` with these arguments in a folder; return its exit code, stdout and stderr."""
    # Letters that cannot be written are spelled, as `cli.output` has it.
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True) for _ in range(2))
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
        mock.patch.object(sys, "argv", ["metalforge", *map(str, arguments)]),
    ):
        try:
            program()
        except SystemExit as ended:
            code = ended.code
    return SimpleNamespace(code=code, stdout=out.buffer.getvalue().decode(), stderr=err.buffer.getvalue().decode())


def call(*arguments, cwd, code=0):
    """Run `metalforge` with these arguments in a folder; return its stdout and stderr. It must exit with `code`."""
    done = run(*arguments, cwd=cwd)
    assert done.code == code, done.stderr
    return done


def study(*arguments, cwd, code=0):
    """Run `python -m experiments` with these arguments in a folder, as `call` does `metalforge`."""
    done = run(*arguments, cwd=cwd, program=experiments.main)
    assert done.code == code, done.stderr
    return done
