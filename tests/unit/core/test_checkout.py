import pytest

from metalforge.core.installation import checked_out_commit

COMMIT, OTHER = "0123456789abcdef0123456789abcdef01234567", "f" * 40


@pytest.fixture
def tree(tmp_path):
    """Return the package of a source tree whose branch is at a commit."""
    git = tmp_path / "root" / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "refs" / "heads" / "main").write_text(COMMIT + "\n")
    package = tmp_path / "root" / "src" / "package"
    package.mkdir(parents=True)
    return package


def git_of(package):
    return package.parent.parent / ".git"


def test_a_branch(tree):
    assert checked_out_commit(tree) == COMMIT


def test_a_commit_without_a_branch(tree):
    (git_of(tree) / "HEAD").write_text(OTHER)
    assert checked_out_commit(tree) == OTHER


def test_a_branch_that_git_has_packed(tree):
    (git_of(tree) / "refs" / "heads" / "main").unlink()
    (git_of(tree) / "packed-refs").write_text(f"# pack-refs\n{OTHER} refs/heads/other\n{COMMIT} refs/heads/main\n")
    assert checked_out_commit(tree) == COMMIT


def test_a_linked_worktree(tree, tmp_path):
    inside = git_of(tree) / "worktrees" / "second"
    inside.mkdir(parents=True)
    (inside / "HEAD").write_text("ref: refs/heads/main\n")
    (inside / "commondir").write_text("../..\n")
    package = tmp_path / "second" / "src" / "package"
    package.mkdir(parents=True)
    (tmp_path / "second" / ".git").write_text(f"gitdir: {inside}\n")
    assert checked_out_commit(package) == COMMIT


@pytest.mark.parametrize("head", ["", "no commit", "ref: refs/heads/missing", "ref: refs/heads/loop", b"\xff\xfe"])
def test_what_is_broken_is_unknown(tree, head):
    (git_of(tree) / "refs" / "heads" / "loop").write_text("ref: refs/heads/loop")
    (git_of(tree) / "HEAD").write_bytes(head if isinstance(head, bytes) else head.encode())
    assert checked_out_commit(tree) == ""


def test_an_installed_package_is_no_part_of_the_project_around_it(tree):
    installed = tree.parent.parent / "lib" / "package"
    installed.mkdir(parents=True)
    assert checked_out_commit(installed) == ""


def test_a_tree_without_git(tmp_path):
    assert checked_out_commit(tmp_path / "src" / "package") == ""
