"""The site is built from what is here, without network, and its notebooks run."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import doc_images  # noqa: E402
import notebooks  # noqa: E402
import site_hook  # noqa: E402
import site_pages  # noqa: E402

TEXTS = sorted((ROOT / "examples").glob("*.md"))
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]* src=\"?(https?:)?//|<link[^>]* rel=\"?(?:stylesheet|preconnect|icon)\"?[^>]*href=\"?https?://"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, env=None)
    assert done.returncode == 0, done.stderr
    return folder


def test_it_has_its_tutorials_and_generated_references(site):
    assert len(list((site / "tutorials").rglob("*.html"))) >= 15
    assert "metalforge scan" in (site / "reference" / "cli.html").read_text()
    assert "beta_min" in (site / "reference" / "spec.html").read_text()
    assert "assigned" in (site / "reference" / "journal.html").read_text()
    assert "CampaignSpec" in (site / "reference" / "api" / "campaign.html").read_text()
    assert (site / "search" / "search_index.json").stat().st_size > 100_000


def test_no_page_fetches_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert pages
    assert [page.name for page in pages if FETCHED.search(page.read_text())] == []


def test_every_field_of_a_spec_and_every_verb_has_its_line():
    from metalforge.campaign.report.spec_text import NOTES
    from metalforge.cli.main import ROOMS, VERBS
    from metalforge.lattice.campaign import Lattice
    from metalforge.plasma.campaign import Plasma

    spec, cli = site_pages.spec_page(), site_pages.cli_page()
    assert all(f"| `{path.rpartition('.')[2]}` |" in spec for path in NOTES)
    assert all(f"| `{name}` |" in spec for theory in (Lattice, Plasma) for name in theory.notes() if name)
    assert all(f"## metalforge {verb}\n" in cli for verb in VERBS)
    assert all(f"## metalforge {room} " in cli for room in ROOMS)


def test_the_figure_of_the_readme_has_its_points_on_its_curve(tmp_path, monkeypatch):
    doc_images.main(tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn <= {path.name for path in (ROOT / "docs" / "images").iterdir()}
    assert "transition.svg" in drawn
    assert (ROOT / "docs" / "images" / "house.svg").read_text() == doc_images.house()
    monkeypatch.setattr(doc_images, "LARGEST_PULL", 0.01)
    monkeypatch.setattr(doc_images, "TRAJECTORIES", 4_000)
    with pytest.raises(SystemExit, match="curve"):
        doc_images.main(tmp_path)


def test_links_are_those_of_the_site_or_words():
    text = "[a](docs/guides/scan.md#x) [b](ARCHITECTURE.md) [c](LICENSE) [d](https://e.org)"
    said = site_pages.site_links(text, "README.md", "start/page.md")
    assert said == "[a](../guides/scan.md#x) [b](../contributors/architecture.md) c [d](https://e.org)"


def test_the_first_use_of_a_word_in_prose_leads_to_the_glossary():
    page = "# A journal\n\n`journal` and a journal, the journal.\n\n```text\njournal\n```\n"
    assert site_hook.gloss(page, "../glossary.md") == page.replace("a journal,", "a [journal](../glossary.md#journal),")
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    assert [word for word in site_hook.GLOSSED if not re.search(rf"^\| (?:[^|]*, )?{word}\b", glossary, re.M)] == []


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_notebooks_are_their_texts_and_run(text, tmp_path):
    kept = text.with_suffix(".ipynb").read_text()
    assert kept == notebooks.notebook_of(text.read_text()), "make notebooks"
    notebook = nbformat.reads(kept, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert outputs[0]
    assert any("text/html" in output.get("data", {}) for cell in outputs for output in cell)
