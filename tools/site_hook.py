"""What MkDocs calls while it builds the site: generated pages, links, marks of blocks, words that the glossary has."""

import re
from posixpath import relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import evidence
from site_pages import FROM_THE_ROOT, generated, site_links

MARKS = {
    "ray": "needs Ray; make test-cluster runs it",
    "elsewhere": "for another machine; checked, not run",
    "interactive": "waits for you; checked, not run",
    "long": "takes minutes; make test-long runs it",
    "excerpt": "part of the output",
}
"""Marks of blocks and what a reader is told about them; tests/reference/document_blocks.py says what they do."""
GLOSSED = (
    "established", "evidence item", "steerer", "journal", "substrate", "device profile", "skill", "trust", "baseline",
    "reservoir", "pull", "bit family", "visit", "lane", "ordering", "placement", "preset", "spec",
    "campaign", "conductor", "checkpoint", "observable", "segment", "volley", "two-rail", "program slot",
)  # fmt: skip
"""Words of the glossary that the first use in a page leads to; common English words are not among them."""
TEACHING = ("start/", "tutorials/", "howto/", "concepts/", "guides/")
FENCE = re.compile(r"^(```(?:bash|python|text|toml|console))((?: \w+)+)$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code."""
    for path, text in generated().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links of the repository into links of the site, marks of blocks into titles, and gloss words."""
    path = page.file.src_uri
    if path == "evidence/index.md":
        markdown = markdown.replace(evidence.MARK, evidence.index())
    if path not in FROM_THE_ROOT.values() and not path.startswith(("reference/", "contributors/rooms/")):
        markdown = site_links(markdown, f"docs/{path}", path)
    if path == "glossary.md":
        markdown = re.sub(r"^\| ([^|]+?) \| ", _anchored, markdown, flags=re.MULTILINE)
    elif path.startswith(TEACHING):
        markdown = gloss(markdown, relpath("glossary.md", path.rpartition("/")[0]))
    return FENCE.sub(_titled, markdown)


def _titled(found: re.Match[str]) -> str:
    said = "; ".join(MARKS[mark] for mark in found[2].split())
    return f'{found[1]} title="{said}"'


def _anchored(found: re.Match[str]) -> str:
    words = found[1]
    if words in {"word", "---"}:
        return found[0]
    anchors = "".join(f'<span id="{anchor(word)}"></span>' for word in re.sub(r" \(.*?\)", "", words).split(", "))
    return f"| {anchors}{words} | "


def anchor(word: str) -> str:
    """Return the name by which a word of the glossary is linked to."""
    return word.strip().replace(" ", "-").lower()


def gloss(markdown: str, glossary: str) -> str:
    """Return the page with the first use of each word of `GLOSSED` in its prose linked to the glossary."""
    lines, inside, left = markdown.split("\n"), False, set(GLOSSED)
    for n, line in enumerate(lines):
        if line.startswith("```"):
            inside = not inside
        if inside or not line or line[0] in "#|=<!:" or line.startswith(("    ", "---")):
            continue
        for word in sorted(left):
            # Not within code, links or emphasis that is one already.
            pieces = re.split(r"(`[^`]*`|!?\[[^\]]*\]\([^)]*\)|\*\*[^*]*\*\*|<[^>]*>)", line)
            for k in range(0, len(pieces), 2):
                found = re.search(rf"\b{word}s?\b", pieces[k])
                if found:
                    pieces[k] = (
                        pieces[k][: found.start()]
                        + f"[{found[0]}]({glossary}#{anchor(word)})"
                        + pieces[k][found.end() :]
                    )
                    line, left = "".join(pieces), left - {word}
                    break
        lines[n] = line
    return "\n".join(lines)
