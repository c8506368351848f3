"""Blocks of the documents, and a place where the blocks of one page run in order, as a reader would type them.

A page is one session: one folder, one Python whose names stay from block to block. After the language of a block may
stand marks, and a title:

- `title="NAME"`: the block is written to that file of the folder instead of being run.
- `ray`, `long`: needs Ray, takes minutes: run by `make test-cluster` and `make test-long PART=docs` alone.
- `elsewhere`, `interactive`: needs other machines, or waits for a person: only parsed, by the command line itself.
- `excerpt`, of a `text` block: its lines are some of the output, in order.

A `text` block is what the block before it prints. Within a line `...` stands for one word with a digit in it, which may
differ from run to run; words are compared. A line `...` stands for lines that are left out.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import typer.main

from experiments.__main__ import app as experiments
from metalforge.cli.main import app

ROOT = Path(__file__).parents[2]
PROGRAMS = {"metalforge": app, "experiments": experiments}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PARSED = {"elsewhere", "interactive"}
MARKS = {"ray", "long", "excerpt", *PARSED}
RUN = ("python", "bash")
LONGEST_S = 2400.0
"""A page that takes longer hangs."""
VARYING = r"(?:\S*\d\S*|\.\.\.)"
"""What `...` within a line stands for: a number with what is written together with it, or the dots themselves."""
FENCE = re.compile(r'^```(\w+)((?: \w+)*)(?: title="([\w.-]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
DRIVER = Path(__file__).with_name("document_session.py")


class Block(NamedTuple):
    """A fenced block of a page: its language, marks, the file it is written to, its text, and what it must print."""

    language: str
    marks: frozenset
    title: str
    code: str
    promised: "str | None" = None
    whole: bool = True


def blocks(text):
    """The fenced blocks of a document, each with the output that the next one promises."""
    found = [Block(m[1], frozenset(m[2].split()), m[3] or "", m[4]) for m in FENCE.finditer(text)]
    joined = []
    for block, follows in zip(found, [*found[1:], None], strict=False):
        if follows is not None and follows.language == "text" and block.language in RUN and not block.title:
            block = block._replace(promised=follows.code, whole="excerpt" not in follows.marks)
        joined.append(block)
    return joined


def runnable(page, marks=frozenset()):
    """The blocks of a page that run where blocks with `marks` do, or None where there is nothing to run."""
    chosen = [
        block
        for block in blocks(page.read_text())
        if block.title or (block.language in RUN and block.marks - {"excerpt"} <= marks)
    ]
    wanted = [block for block in chosen if not block.title]
    if marks:  # the rest of the page only where it is needed for what is marked
        wanted = [block for block in wanted if block.marks & marks]
    return chosen if wanted else None


def run_page(chosen, folder, **environment):
    """Run blocks in a folder; what each printed. Raises AssertionError at the first that fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    session = [[block.language, block.title, without_make(block.code)] for block in chosen]
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", str(DRIVER)],
        input=json.dumps(session),
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        timeout=LONGEST_S,
        env=os.environ
        | {"PATH": path, "METALFORGE_CACHE": str(folder / "cache"), "NO_COLOR": "1", "METALFORGE_THREADS": "1"}
        | {"PYTHONPATH": str(ROOT)}  # studies are run from a checkout
        | environment,
    )
    outputs = json.loads(done.stdout) if done.stdout else []
    assert outputs, done.stderr
    for block, (code, printed, said) in zip(chosen, outputs, strict=False):
        assert code == 0, f"{block.code}\n{printed}\n{said}"
        if block.promised is not None:
            assert_prints(printed, block.promised, block.whole)
    assert len(outputs) == len(chosen)
    return [printed for _, printed, _ in outputs]


def without_make(code):
    """A block without the lines that call make: targets are checked by their names."""
    return "\n".join(line for line in code.split("\n") if not line.startswith("make "))


def assert_prints(printed, promised, whole=True):
    """The output is what a page says, but for varying numbers; where not `whole`, its lines come in this order.

    Several spaces within a line count as one: the columns of a table are as wide as its numbers.
    """
    lines, wanted = (
        [re.sub(r"(?<=\S) +", " ", line.rstrip()) for line in text.strip().splitlines()] for text in (printed, promised)
    )
    patterns = [None if line == "..." else VARYING.join(map(re.escape, line.split("..."))) for line in wanted]
    if whole:
        pattern = "".join("(?:.*\n)*?" if one is None else f"{one}\n" for one in patterns)
        assert re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)), (
            f"a page promises\n{promised}\nand its block printed\n{printed}"
        )
        return
    rest = iter(lines)
    for pattern, line in zip(patterns, wanted, strict=False):
        assert pattern is None or any(re.fullmatch(pattern, one) for one in rest), (
            f"{line!r} is not in, or not in order in\n{printed}"
        )


def commands(block):
    """The words of every command of a block that is ours, the first the name of its program."""
    joined = block.code.replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in joined.splitlines()]
    ours = [words[2:] if words[1:3] == ["-m", "experiments"] else words for words in lines if words]
    return [[Path(words[0]).name, *words[1:]] for words in ours if Path(words[0]).name in PROGRAMS]


def assert_parses(words):
    """The program takes these words, as far as it can say without running them."""
    program, *words = words
    command, words = typer.main.get_command(PROGRAMS[program]), [word for word in words if word not in {"&", ">"}]
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    if ">" in " ".join(words):
        words = words[: next(n for n, word in enumerate(words) if word.startswith(">"))]
    assert command.make_context(command.name, words) is not None
