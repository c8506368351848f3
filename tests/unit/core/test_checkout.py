import subprocess

import pytest

from metalforge.core.installation import checked_out_commit


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(
        ["git", "-C", folder, *who, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def tree(tmp_path):
    """Return the package of a source tree with one commit."""
    package = tmp_path / "root" / "src" / "package"
    package.mkdir(parents=True)
    git(tmp_path, "init", "root")
    git(tmp_path / "root", "commit", "--allow-empty", "-m", "one")
    return package


def root_of(package):
    return package.parent.parent


def test_the_commit_of_a_branch_and_of_a_linked_worktree(tree, tmp_path):
    commit = git(root_of(tree), "rev-parse", "HEAD")
    assert checked_out_commit(tree) == commit
    git(root_of(tree), "worktree", "add", "--detach", tmp_path / "second")
    package = tmp_path / "second" / "src" / "package"
    package.mkdir(parents=True)
    assert checked_out_commit(package) == commit


def test_the_repository_that_git_is_told_of_elsewhere_is_not_asked(tree, tmp_path, monkeypatch):
    commit = git(root_of(tree), "rev-parse", "HEAD")
    git(tmp_path, "init", "other")
    git(tmp_path / "other", "commit", "--allow-empty", "-m", "another")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert checked_out_commit(tree) == commit


def test_a_broken_checkout_is_unknown(tree):
    (root_of(tree) / ".git" / "HEAD").write_text("ref: refs/heads/missing")
    assert checked_out_commit(tree) == ""


def test_an_installed_package_is_no_part_of_the_project_around_it(tree):
    installed = root_of(tree) / "lib" / "package"
    installed.mkdir(parents=True)
    assert checked_out_commit(installed) == ""


def test_a_tree_without_git(tmp_path):
    assert checked_out_commit(tmp_path / "src" / "package") == ""
