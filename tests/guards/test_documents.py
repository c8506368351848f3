"""The documents are part of the product: their links resolve and they know every room."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import evidence  # noqa: E402
import site_pages  # noqa: E402
from experiments.markdown import run_line  # noqa: E402

DOCUMENTS = [
    ROOT / name
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "BENCHMARKS.md")
]
DOCUMENTS += sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_between_documents_resolve(path):
    made = {(ROOT / "docs" / page).resolve() for page in site_pages.generated_paths()}
    for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", path.read_text()):
        there = path.parent / target
        assert there.exists() or there.resolve() in made, target


CRYPTIC = re.compile(
    r"\b(?:ns|us|ms|s|[kKMG]i?B|bytes|joules?|updates|rows?|steps|samples|items|lines?|figures?|one|once|twice) an? "
    r"(?:link|site|pair|particle|step|row|op|joule|core|iteration|second|update|chain|item|call|unit|head|series)\b"
)
"""A rate is "per": "ns a link" and "one a core" have to be read twice."""


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path.name != "CHANGELOG.md"], ids=lambda p: p.name)
def test_rates_are_said_with_per(path):
    assert CRYPTIC.findall(path.read_text()) == []


def test_every_room_has_its_line_in_architecture():
    rooms = [p.name for p in (ROOT / "src" / "metalforge").iterdir() if (p / "__init__.py").exists()]
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert rooms
    assert [room for room in rooms if f"`{room}/`" not in text] == []


CFF_KEYS = {
    "abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers", "keywords",
    "license", "license-url", "message", "preferred-citation", "references", "repository", "repository-artifact",
    "repository-code", "title", "type", "url", "version",
}  # fmt: skip
"""All that the schema of the Citation File Format 1.2.0 allows (doi:10.5281/zenodo.5171937)."""
ENTITY_KEYS = {
    "address", "alias", "city", "country", "date-end", "date-start", "email", "fax", "location", "name", "orcid",
    "post-code", "region", "tel", "website",
}  # fmt: skip


def test_the_citation_file_is_of_its_format_and_version():
    """By the rules of the schema; `cffconvert --validate` says the same where it is installed (CONTRIBUTING.md)."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0"
    assert {"cff-version", "message", "title", "authors"} <= set(cited) <= CFF_KEYS
    assert all(isinstance(cited[key], str) and cited[key] for key in ("message", "title", "abstract", "version"))
    assert cited["type"] in {"software", "dataset"}
    assert len(set(cited["keywords"])) == len(cited["keywords"])
    assert cited["authors"]
    assert all({"name"} <= set(author) <= ENTITY_KEYS for author in cited["authors"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])


def test_the_index_of_tables_has_every_table_with_its_command_machine_and_date():
    assert evidence.MARK in (ROOT / "docs" / "evidence" / "index.md").read_text()
    entries = [evidence.entry(page) for page in evidence.pages()]
    assert len(entries) >= 18
    commands = ("metalforge ", "python -m experiments ", "PYTHONPATH=tests ", "git log -- experiments/")
    assert all(one.question and one.command.startswith(commands) for one in entries)
    assert all(re.match(r"\d{4}-\d\d-\d\d, |not recorded$", one.date) for one in entries)
    stored = {one.name: one.machine for one in entries}
    assert "NVIDIA H200" in stored["thermodynamics"]
    assert stored["coverage"] == evidence.NOT_RECORDED


def test_a_table_that_stores_its_run_is_believed(tmp_path):
    page = tmp_path / "x.md"
    page.write_text(
        f"# Experiment x\n\nWhy?\n\nMade by `a`; `metalforge b` prints the same.\n\n{run_line()}\n\n| c |\n"
    )
    name, question, command, machine, date = evidence.entry(page)
    assert (name, question, command) == ("x", "Why?", "metalforge b")
    assert "cores of" in machine
    assert date.endswith(", ran")
