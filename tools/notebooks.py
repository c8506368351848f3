"""Notebooks from text: every Markdown file of a folder becomes a notebook beside it: python tools/notebooks.py FOLDER.

Blocks of Python are code cells, everything else is Markdown. Notebooks are kept without outputs, so that a change of
one is readable; `tests/guards/test_site.py` runs them.
"""

import re
import sys
from hashlib import sha256
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

CODE = re.compile(r"^```python\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)


def notebook_of(text: str) -> str:
    """Return the notebook of a text, as JSON; the same text gives the same bytes."""
    cells = []
    for n, part in enumerate(CODE.split(text)):  # words, code, words, ...
        if part.strip():
            name = sha256(f"{n}{part}".encode()).hexdigest()[:8]
            cells.append((new_code_cell if n % 2 else new_markdown_cell)(part.strip(), id=name))
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return str(nbformat.writes(new_notebook(cells=cells, metadata=kernel))) + "\n"


def main(folder: Path) -> None:
    """Write the notebook of every text."""
    for text in sorted(folder.glob("*.md")):
        text.with_suffix(".ipynb").write_text(notebook_of(text.read_text()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
