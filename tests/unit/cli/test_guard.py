"""One guard: whatever a verb raises is one line and a documented exit code, and --debug shows where."""

import errno
import io
import os
import sys

import pytest

from metalforge.cli.guard import EXIT_CODES, guarded
from metalforge.cli.main import main
from metalforge.core.errors import PlacementError, SpecError, UnknownNameError
from metalforge.core.files import naming
from reference.command_line import call


def raising(error):
    def verb():
        raise error

    return verb


def said_by(error, capsys, **options):
    code = guarded(raising(error), **options)
    return code, capsys.readouterr().err


FULL = OSError(errno.ENOSPC, "No space left on device", "x.bin")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (SpecError("`a` is wanted"), 2, "error: `a` is wanted"),
        (UnknownNameError("verb", "scam", ["scan"]), 2, "error: unknown verb `scam`; known: scan"),
        (PlacementError("no such silicon"), 3, "error: no such silicon"),
        (FileNotFoundError(errno.ENOENT, "No such file", "x.toml"), 2, "error: x.toml: No such file"),
        (OSError(errno.EMFILE, "Too many open files", "x"), 3, "error: x: Too many open files"),
        (FULL, 75, "error: x.bin: No space left on device"),
        (OSError("nothing known"), 2, "error: nothing known"),
        (ValueError("wants 1..4.\nGot 5"), 2, "error: wants 1..4."),
        (ValueError(), 2, "error: ValueError: "),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no start"), 2, "error: 'utf-8' codec"),
        (RecursionError("maximum depth"), 2, "error: RecursionError: maximum depth"),
        (MemoryError("Unable to allocate 1 TiB"), 3, "error: not enough memory: Unable to allocate 1 TiB"),
        (MemoryError(), 3, "error: not enough memory\n"),
        (ImportError("libx.so: cannot be mapped"), 3, "error: ImportError: libx.so"),
        (KeyError("a"), 70, "error: KeyError: 'a'"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=repr,
)
def test_a_failure_is_one_line_and_a_documented_code(error, code, line, capsys):
    came, said = said_by(error, capsys)
    assert (came, said[: len(line)]) == (code, line)
    assert "Traceback" not in said
    assert [text for text in said.splitlines()[1:] if not text.startswith("hint: ")] == []
    assert str(code) in EXIT_CODES


def test_a_disk_fault_is_known_under_the_error_that_names_the_file(capsys):
    with pytest.raises(SpecError) as caught, naming("run/x.bin", "written"):
        raise FULL
    assert said_by(caught.value, capsys) == (75, "error: run/x.bin: cannot be written (No space left on device)\n")


def test_hints_that_were_added_on_the_way_are_shown_and_other_notes_are_not(capsys):
    error = SpecError("broken")
    error.add_note("hint: resume it")
    error.add_note("seen by nobody")
    assert said_by(error, capsys)[1] == "error: broken\nhint: resume it\n"


def test_only_a_fault_of_ours_asks_to_be_reported(capsys):
    assert "report it" in said_by(AssertionError("never"), capsys)[1]
    assert "report it" not in said_by(ValueError("wrong"), capsys)[1]


@pytest.mark.parametrize("place", [0, 1, 3])
def test_debug_shows_the_traceback_wherever_it_stands(place, tmp_path):
    words = ["scan", "missing.toml", "--json"]
    told = call(*words, cwd=tmp_path, code=2).stderr
    words.insert(place, "--debug")
    shown = call(*words, cwd=tmp_path, code=2).stderr
    assert "Traceback" not in told
    assert shown.startswith("Traceback")
    assert shown.endswith(told)
    assert "in load_spec" in shown


def test_a_stream_that_takes_nothing_is_said_by_the_code_and_once(monkeypatch):
    """In process: streams over descriptors that cannot be written, as /dev/full and a closed one are."""
    with open(os.devnull) as unwritable:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.FileIO(unwritable.fileno(), "w", closefd=False)))
        monkeypatch.setattr(sys, "stderr", heard := io.TextIOWrapper(io.BytesIO(), write_through=True))
        monkeypatch.setattr(sys, "argv", ["metalforge", "presets"])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 75
    assert heard.buffer.getvalue() == b"error: stdout cannot be written (Bad file descriptor)\n"
