"""Wrong uses of every verb that once ended in a traceback: one line that says what is wrong, and the code for it."""

import os
import re
import struct

import numpy as np
import pytest

from reference.command_line import call

CHAIN = ("lattice", "generate", "--warmup", "1", "--trajectories", "2", "--dims", "4", "4", "4", "2")
TOPOLOGY = """
[[stages]]
name = "numbers"
use = "door_stages:numbers"
[[stages]]
name = "last"
use = "{use}"
[[edges]]
from = "numbers"
to = "last"
"""
STAGES = """
import sys
def numbers():
    return [1, 2]
def fails(x):
    raise ZeroDivisionError("boom")
def quits(x):
    sys.exit(0)
class Costly:
    def __init__(self):
        raise RuntimeError("too costly")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of wrong inputs, and some right ones beside them."""
    path = tmp_path_factory.mktemp("doors")
    (path / "bytes.toml").write_bytes(b'name = "\xff\xfe"\n')
    (path / "lists.toml").write_text("a = " + "[" * 20_000 + "]" * 20_000 + "\n")
    (path / "tables.toml").write_text("a = " + "{b=" * 20_000 + "1" + "}" * 20_000 + "\n")
    (path / "door_stages.py").write_text(STAGES)
    (path / "door_imports.py").write_text("import absent_package\n")
    (path / "door_grammar.py").write_text("def f(:\n")
    (path / "door_exits.py").write_text("import sys\nsys.exit(0)\n")
    for name, use in {
        "good": "metalforge.pipeline:Collect",
        "fails": "door_stages:fails",
        "quits": "door_stages:quits",
        "costly": "door_stages:Costly",
        "imports": "door_imports:f",
        "grammar": "door_grammar:f",
        "exits": "door_exits:f",
    }.items():
        (path / f"{name}.toml").write_text(TOPOLOGY.format(use=use))
    np.save(path / "m.npy", np.eye(8))
    np.save(path / "x.npy", np.ones((1, 8)))
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**7}, {10**7}), }}".ljust(117) + "\n"
    (path / "vast.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
    call("npu", "compile", "m.npy", "-o", "m.mfp", cwd=path)
    os.mkfifo(path / "pipe")
    return path


@pytest.mark.parametrize(
    ("line", "code", "word"),
    [
        ((*CHAIN, "--dims", *["512"] * 4), 3, r"512x512x512x512.* 36,864.0 GiB"),
        ((*CHAIN, "--dims", *["100000"] * 4), 2, "65536.*100000"),
        ((*CHAIN, "--dims", "2000000000", "2", "2", "2"), 2, "65536.*2000000000"),
        ((*CHAIN, "--dims", "100000", "2", "2", "2"), 2, "dims"),
        ((*CHAIN, "--seed", "-1"), 2, "--seed"),
        ((*CHAIN, "--seed", "100000000000000000000"), 2, "--seed"),
        ((*CHAIN, "--stream", "-1"), 2, "--stream"),
        ((*CHAIN, "--threads", "0"), 2, "--threads"),
        ((*CHAIN, "--threads", "-3"), 2, "--threads"),
        ((*CHAIN, "--threads", "1000000"), 2, "--threads"),
        ((*CHAIN, "--trace", "absent/trace"), 2, "absent/trace"),
        ((*CHAIN, "--out", "m.npy"), 2, "m.npy"),
        (("scan", "bytes.toml"), 2, "bytes.toml"),
        (("scan", "lists.toml"), 2, "lists.toml: is nested too deeply"),
        (("scan", "tables.toml"), 2, "tables.toml: is nested too deeply"),
        (("scan", "--preset", "demo", "--out", ""), 2, "`--out` .* empty"),
        (("scan", "--preset", "demo", "--out="), 2, "`--out` .* empty"),
        (("scan", "--seconds", "nan"), 2, "seconds"),
        (("npu", "compile", "vast.npy", "-o", "a.mfp"), 2, "vast.npy"),
        (("npu", "explain", "vast.npy"), 2, "vast.npy"),
        (("npu", "run", "m.mfp", "vast.npy"), 2, "vast.npy"),
        (("npu", "compile", "m.npy", "-o", "absent/a.mfp"), 2, "absent/a.mfp"),
        (("npu", "compile", "m.npy", "-o", "pipe"), 2, "pipe: not a regular file"),
        (("npu", "run", "m.mfp", "x.npy", "-o", "absent/y"), 2, "absent/y"),
        (("npu", "run", "m.mfp", "x.npy", "-o", "pipe"), 2, "pipe: not a regular file"),
        (("npu", "explain", "m.npy", "--host-power-w", "nan"), 2, "--host-power-w"),
        (("pipeline", "check", "imports.toml"), 2, "door_imports:f.*absent_package"),
        (("pipeline", "check", "grammar.toml"), 2, "door_grammar:f.*SyntaxError"),
        (("pipeline", "check", "exits.toml"), 2, "door_exits:f.*SystemExit"),
        (("pipeline", "run", "exits.toml"), 2, "SystemExit"),
        (("pipeline", "check", "costly.toml"), 2, "door_stages:Costly.*too costly"),
        (("pipeline", "check", "lists.toml"), 2, "depth"),
        (("pipeline", "run", "fails.toml"), 2, "`last`.*ZeroDivisionError: boom"),
        (("pipeline", "run", "quits.toml"), 2, "`last`.*SystemExit"),
        (("pipeline", "run", "quits.toml", "--runtime", "inline"), 2, "`last`.*SystemExit"),
        (("pipeline", "run", "good.toml", "--events", "absent/e"), 2, "absent/e"),
        (("pipeline", "run", "good.toml", "--seconds", "nan"), 2, "--seconds"),
        (("pipeline", "run", "good.toml", "--seconds", "-1"), 2, "--seconds"),
        (("route", "tables.toml"), 2, "tables.toml"),
        (("search", "--trials", "2", "--seed", "100000000000000000000"), 2, "--seed"),
    ],
    ids=lambda value: " ".join(value)[:80] if isinstance(value, tuple) else None,
)
def test_a_wrong_use_is_one_line_and_its_code(line, code, word, folder):
    before = sorted(folder.iterdir())
    said = call(*line, cwd=folder, code=code).stderr.splitlines()
    (error,) = [text for text in said if re.match("error: |Error: ", text)]
    assert re.search(word, error)
    others = [text for text in said if text != error and not re.match("hint: |Usage: |Try '|$", text)]
    assert others == []
    assert [path for path in sorted(folder.iterdir()) if path.name != "__pycache__"] == [
        path for path in before if path.name != "__pycache__"
    ]


def test_npu_run_writes_the_file_that_was_named(folder, tmp_path):
    call("npu", "run", folder / "m.mfp", folder / "x.npy", "-o", "result.bin", cwd=tmp_path)
    assert os.listdir(tmp_path) == ["result.bin"]
    assert np.load(tmp_path / "result.bin").shape == (1, 8)
