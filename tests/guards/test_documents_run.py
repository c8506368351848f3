"""What the documents show runs: every page as a session of its own, printing what the page says it prints."""

import re

import pytest

from reference.document_blocks import (
    FENCE,
    MARKS,
    PAGES,
    PARSED,
    ROOT,
    assert_parses,
    assert_prints,
    blocks,
    commands,
    run_page,
    runnable,
)

README = blocks((ROOT / "README.md").read_text())
HERE = [page for page in PAGES if runnable(page)]
LONG = [page for page in PAGES if runnable(page, frozenset({"long"}))]


def name(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", HERE, ids=name)
def test_a_page_can_be_followed(page, tmp_path):
    assert run_page(runnable(page), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("page", LONG, ids=name)
def test_a_page_can_be_followed_to_its_long_blocks(page, tmp_path):
    assert run_page(runnable(page, frozenset({"long"})), tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_of_commands_or_python_is_run_or_parsed(page):
    text = page.read_text()
    found = blocks(text)
    fences = [line for line in text.splitlines() if line.startswith("```")]
    assert len(found) == sum(line != "```" for line in fences[::2]), "a fence is open, or its marks are not understood"
    assert {mark for block in found for mark in block.marks} <= MARKS
    assert not [block for block in found if block.language in {"console", "sh", "shell"}], "bash runs, console does not"
    for block in found:
        assert block.promised is None or set(block.promised.split()) - {"..."}, f"shows no output of\n{block.code}"
        for words in commands(block) if block.language == "bash" and block.marks & PARSED else []:
            assert_parses(words)


def test_the_readme_names_the_two_commands_and_real_targets():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    makes = {line.split()[1] for block in README for line in block.code.splitlines() if line.startswith("make ")}
    assert {"demo", "test"} <= makes <= targets


def test_the_site_teaches_with_pages_that_run():
    tutorials = [page for page in HERE if "tutorials" in page.parts]
    assert len(tutorials) >= 15


@pytest.mark.parametrize(
    ("printed", "promised", "whole", "same"),
    [
        ("a 1\nb 2\n", "a 1\nb 2", True, True),
        ("a 1\nb 2\n", "a 1", True, False),
        ("a 1\nb 2\n", "b 2", False, True),
        ("a 1\nb 2\n", "b 2\na 1", False, False),
        ("took 3.7 s\n", "took ... s", True, True),
        ("beta_c(4^3x2) = 5.0840(32), established\n", "beta_c(4^3x2) = ..., established", True, True),
        ("one\ntwo\nthree\nfour\n", "one\n...\nfour", True, True),
        ("one\ntwo\nthree\nfour\n", "one\n...\nfour", False, True),
        ("one\ntwo\n", "...\ntwo", True, True),
        ("one ... two\n", "one ... two", True, True),
        ("beta_c: not located\n", "beta_c: not ...", False, False),
        ("beta_c: not located\n", "beta_c: ...", False, False),
        ("beta_c = 5.08(2), lacking points\n", "beta_c = ...", False, False),
        ("20 items: not established\n", "20 items: ... established", True, False),
        ("one\n", "two", False, False),
    ],
)
def test_the_comparison_itself_notices(printed, promised, whole, same):
    if same:
        assert_prints(printed, promised, whole)
        return
    with pytest.raises(AssertionError):
        assert_prints(printed, promised, whole)


def test_blocks_are_found_with_their_marks():
    text = '```bash ray\nx\n```\n\n```python title="a.py"\ny\n```\n```python\nz\n```\nwords\n```text excerpt\nz\n```\n'
    found = blocks(text)
    assert [(block.language, set(block.marks), block.title) for block in found] == [
        ("bash", {"ray"}, ""), ("python", set(), "a.py"), ("python", set(), ""), ("text", {"excerpt"}, ""),
    ]  # fmt: skip
    assert (found[2].promised, found[2].whole) == ("z\n", False)
    assert FENCE.search("```python\nz\n```")
