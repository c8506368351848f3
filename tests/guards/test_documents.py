"""The documents are part of the product: their links resolve and they know every room."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
DOCUMENTS += sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_between_documents_resolve(path):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_every_room_has_its_line_in_architecture():
    rooms = [p.name for p in (ROOT / "src" / "metalforge").iterdir() if (p / "__init__.py").exists()]
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert rooms
    assert [room for room in rooms if f"`{room}/`" not in text] == []
