"""Tables and file names on a terminal of 80 columns."""

import io
import re
import sys

from metalforge.cli.output import print_table

PATH = "/a/rather/deep/directory/of/somebody/campaigns/demo-20261115-093012/chains/configuration_000120.lime"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def drawn(monkeypatch, *table):
    """Return what a terminal of 80 columns is sent."""
    for name, value in (("TERM", "xterm"), ("COLUMNS", "80"), ("LINES", "24"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    print_table(*table)
    return re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue())


def test_a_file_name_stays_in_one_piece_however_many_columns_stand_beside_it(monkeypatch):
    about = "a sentence that is long enough to want more than its share of the eighty columns there are"
    rows = [(PATH, about, "0.5"), ("short.lime", about, "0.4")]
    lines = drawn(monkeypatch, "Configurations", ("file", "what", "plaquette"), rows).splitlines()
    assert sum(PATH in line for line in lines) == 1
    assert all("\u2026" not in line for line in lines)
    assert sum("short.lime" in line for line in lines) == 1
    assert len(lines) > 8  # the sentences are folded


def test_sentences_are_still_folded_to_the_terminal(monkeypatch):
    text = drawn(monkeypatch, "Words", ("name", "what"), [("one", "word " * 60), ("two", "[not-markup] " * 12)])
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("[not-markup]") == 12


def test_a_table_without_rows_has_its_title_and_columns(monkeypatch):
    text = drawn(monkeypatch, "Nothing", ("name", "what"), [])
    assert "Nothing" in text
    assert "what" in text


def test_in_a_pipe_every_line_is_whole(capsys):
    print_table("Files", ("file", "what"), [(PATH, "word " * 40)])
    assert sum(PATH in line and line.count("word") == 40 for line in capsys.readouterr().out.splitlines()) == 1
