"""Files are replaced in one step or not at all, and every error names the file."""

import os
import stat

import pytest

from metalforge.core.errors import SpecError, UnknownNameError
from metalforge.core.files import naming, opened, replacing


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with replacing(path) as stream:
        stream.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_whatever_fails_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def fail():
        with replacing(path) as stream:
            stream.write(b"half of the n")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_symbolic_link_keeps_pointing_at_its_target(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    with replacing(link) as stream:
        stream.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_names_as_long_as_the_file_system_allows_work(tmp_path):
    path = tmp_path / ("n" * 255)
    with replacing(path) as stream:
        stream.write(b"new")
    assert path.read_bytes() == b"new"


def test_opened_gives_the_stream_and_its_size(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    with opened(path) as (stream, size):
        assert (stream.read(), size) == (b"12345", 5)


def test_what_is_not_a_file_is_refused_without_waiting_for_it(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, says in ((pipe, "not a regular file"), (tmp_path, "not a regular file"), (tmp_path / "no", "No such")):
        with pytest.raises(SpecError, match=says) as caught, opened(path):
            raise AssertionError
        assert str(caught.value).startswith(str(path))


def test_errors_inside_name_the_file_and_keep_their_cause(tmp_path):
    with pytest.raises(SpecError, match=r"x\.bin.*`a`") as caught, naming("x.bin"):
        raise UnknownNameError("thing", "a", ["b"])
    assert isinstance(caught.value.__cause__, UnknownNameError)
    with pytest.raises(SpecError, match="cannot be written"), replacing(tmp_path / "no" / "file"):
        raise AssertionError


def test_what_is_no_file_is_never_replaced(tmp_path):
    """A device that was renamed over would be gone: /dev/full, for everybody."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link, tmp_path):
        with pytest.raises(SpecError, match="regular file"), replacing(path):
            raise AssertionError
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_errors_of_decoders_name_the_file():
    with pytest.raises(SpecError, match=r"^x: wrong$"), naming("x"):
        raise ValueError("wrong")
    with pytest.raises(SpecError, match=r"^x: "), naming("x"):
        raise RecursionError
