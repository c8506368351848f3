"""One guard: whatever a verb raises is one line and a documented exit code, and --debug shows where."""

import errno
import io
import os
import sys

import msgspec
import pytest

from metalforge import __version__
from metalforge.campaign.chain_log import ChainLog
from metalforge.campaign.report.spec_text import spec_text
from metalforge.cli.guard import EXIT_CODES, guarded
from metalforge.cli.main import main
from metalforge.core.errors import InternalError, PlacementError, SpecError, UnknownNameError
from metalforge.core.files import naming
from metalforge.pipeline import StageCrashError
from reference.command_line import call
from reference.small_campaigns import ROUNDS


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
        (
            ValueError("operands could not be broadcast\nGot 5"),
            70,
            "error: ValueError: operands could not be broadcast",
        ),
        (ValueError(), 70, "error: ValueError: "),
        (msgspec.ValidationError("Expected `int`"), 2, "error: Expected `int`"),
        (InternalError("a row differs"), 70, "error: a row differs"),
        (StageCrashError("the process of stage `x` died"), 75, "error: the process of stage `x` died"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no start"), 2, "error: 'utf-8' codec"),
        (RecursionError("maximum depth"), 70, "error: RecursionError: maximum depth"),
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


def test_only_an_internal_error_asks_for_a_report_with_the_version(capsys):
    for error in (AssertionError("never"), ValueError("of a library"), InternalError("never")):
        assert f"metalforge {__version__}; report it" in said_by(error, capsys)[1]
    assert "report it" not in said_by(SpecError("wrong"), capsys)[1]


def test_an_internal_error_is_known_under_the_error_that_names_the_file(capsys):
    with pytest.raises(SpecError) as caught, naming("run/journal.jsonl"):
        raise InternalError("two rows of one update")
    code, said = said_by(caught.value, capsys)
    assert (code, said.splitlines()[0]) == (70, "error: run/journal.jsonl: two rows of one update")


def test_a_full_disk_is_no_internal_error(capsys):
    error = InternalError("half a record")
    error.__cause__ = FULL
    assert said_by(error, capsys)[0] == 75


def test_an_internal_error_of_a_campaign_names_the_directory_to_attach(tmp_path, monkeypatch):
    def contradicts(self, rows):
        raise InternalError("update 3 has two rows")

    monkeypatch.setattr(ChainLog, "take", contradicts)
    (tmp_path / "spec.toml").write_text(spec_text(ROUNDS))
    said = call("scan", "spec.toml", "--out", "run", "--json", cwd=tmp_path, code=70).stderr
    assert "error: update 3 has two rows" in said
    assert "hint: attach run to the report" in said


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
