"""The index of all tables: what each asks, the command that makes it, its machine and its date, from what is stored.

`python tools/evidence.py` prints it; the site has it on the page of evidence. Nothing is guessed: a machine or a date
that neither the table nor its data holds is "not recorded".
"""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "docs" / "tables"
MARK = "<!-- the index of all tables: tools/evidence.py makes it when the site is built -->"
NOT_RECORDED = "not recorded"
RAN = re.compile(r"^Ran on (\d{4}-\d\d-\d\d), (.+)\.$", re.MULTILINE)
"""What `python -m experiments page` writes of its own run."""
COMMANDS = (r"`([^`]*)` prints the same", r"Made by\s+`([^`]*)`", r"its code is in the history: `([^`]*)`")
"""Where a page names the command that makes it, or that shows the code of a closed study."""
SILICON = ("silicon", "substrate")
"""Fields of a table's data that name what computed a line."""


class Entry(NamedTuple):
    """A table as the index has it."""

    name: str
    question: str
    command: str
    machine: str
    date: str

    @property
    def row(self) -> str:
        """Return its line."""
        link = f"[{self.name}](../tables/{self.name}.md)"
        return f"| {link} | {self.question} | `{self.command}` | {self.machine} | {self.date} |"


def index() -> str:
    """Return the table of all tables."""
    head = ("table", "question", "command", "machine, as stored", "date")
    return "\n".join([f"| {' | '.join(head)} |", "| --- " * len(head) + "|", *(entry(p).row for p in pages())])


def pages() -> list[Path]:
    """Return the tables."""
    return sorted(TABLES.glob("*.md"))


def entry(page: Path) -> Entry:
    """Return what a page says of itself."""
    text = page.read_text()
    title, first = re.findall(r"^(?!Made by)[^\n|].*", text, re.MULTILINE)[:2]
    question = first if not first.startswith("#") else title.removeprefix("# ")
    made = next(filter(None, (re.search(pattern, text) for pattern in COMMANDS)), None)
    ran = RAN.search(text)
    data = page.with_suffix(".jsonl")
    if ran:
        machine, date = ran[2], f"{ran[1]}, ran"
    else:
        machine, date = stored_machine(text, data), changed(data if data.exists() else page)
    command = " ".join(made[1].split()) if made else NOT_RECORDED
    return Entry(page.stem, question.replace("|", "\\|"), command, machine, date)


def stored_machine(text: str, data: Path) -> str:
    """Return what computed a table's lines, from its data or from a column of its own."""
    found: Counter[str] = Counter()
    if data.exists():
        for line in map(json.loads, filter(None, data.read_text().splitlines())):
            found.update(str(line[field]) for field in SILICON if line.get(field))
    else:
        found.update(re.findall(r"^\| (NVIDIA [^|]+?) \|.*\| measured \|$", text, re.MULTILINE))
    return "; ".join(f"{name} ({count} lines)" for name, count in found.most_common()) or NOT_RECORDED


def changed(file: Path) -> str:
    """Return the day on which the numbers of a file last changed in the history: other words are no other result."""
    path = file.relative_to(ROOT).as_posix()
    versions = [line.split() for line in _git("log", "--format=%H %cs", "--", path).splitlines()]
    if not versions:  # a source tree without its history
        return NOT_RECORDED
    newest, *older = versions
    numbers, day = _numbers(newest[0], path), newest[1]
    for commit, earlier in older:
        if _numbers(commit, path) != numbers:
            break
        day = earlier
    return f"{day}, figures last changed"


def _numbers(commit: str, path: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?", _git("show", f"{commit}:{path}"))


def _git(*words: str) -> str:
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


if __name__ == "__main__":
    print(index())
