"""What the documents show runs: their Python prints what they say it prints, and the README's commands work."""

import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import typer.main

from metalforge.cli.main import app
from reference.cluster_stand import guide_steps

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
GUIDES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _blocks(text):
    return re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


BLOCKS = _blocks(README)


def _python_blocks():
    """Each python block with the text block that follows it: the output it promises."""
    for blocks in (BLOCKS, *(_blocks(guide.read_text()) for guide in GUIDES)):
        for (language, code), follows in pairwise([*blocks, ("", "")]):
            if language != "python":
                continue
            yield code, follows[1] if follows[0] == "text" else None


def test_the_readme_has_blocks_of_each_kind():
    assert {"python", "bash"} <= {language for language, _ in BLOCKS}


@pytest.mark.parametrize(("code", "promised"), list(_python_blocks()))
def test_python_blocks_run_and_print_what_the_readme_says(code, promised, tmp_path):
    done = _python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    if promised is not None:
        assert done.stdout.strip() == promised.strip()


def _python(code, cwd, *words):
    command = [sys.executable, "-W", "error", "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_the_guide_to_evaluation_can_be_followed(tmp_path):
    commands = 0
    for language, code in _blocks((ROOT / "docs" / "guides" / "evaluate.md").read_text()):
        if language == "python":
            assert _python(code, tmp_path).returncode == 0
        for line in code.splitlines() if language == "bash" else []:
            done = _python("from metalforge.cli import main; main()", tmp_path, *line.split()[1:])
            assert done.returncode == 0, (line, done.stderr)
            commands += 1
    assert commands >= 4


def test_the_guide_to_clusters_can_be_followed_as_far_as_one_machine_goes(tmp_path):
    steps = guide_steps()
    assert {mark for mark, _ in steps} == {"", "ray", "elsewhere"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    here = [code for mark, code in steps if not mark]
    assert len(here) >= 7
    for code in here:
        command = ["bash", "-e", "-o", "pipefail", "-c", code]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, check=False, env=os.environ | {"PATH": path}
        )
        assert done.returncode == 0, (code, done.stderr)


def test_what_the_guide_runs_elsewhere_is_accepted_here():
    known = typer.main.get_command(app)
    lines = [
        shlex.split(line, comments=True)
        for mark, code in guide_steps()
        if mark == "elsewhere"
        for line in code.splitlines()
    ]
    commands = [words[1:] for words in lines if words and words[0] == "metalforge"]
    assert len(commands) >= 3
    for words in commands:
        command = known
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        assert command.make_context(command.name, words).params


def test_bash_blocks_name_real_make_targets_and_verbs(tmp_path):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [line.split("#")[0].split() for _, code in BLOCKS for line in code.splitlines() if line.strip()]
    makes = [c[1] for c in commands if c[:1] == ["make"]]
    verbs = [c for c in commands if c and c[0] in {"metalforge", ".venv/bin/metalforge"}]
    assert {"demo", "test"} <= set(makes)
    assert set(makes) <= targets
    assert verbs
    for words in verbs:
        command = [sys.executable, "-c", "from metalforge.cli import main; main()", *words[1:]]
        own_cache = os.environ | {"METALFORGE_CACHE": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, env=own_cache)
        assert done.returncode == 0, (words, done.stderr)
