"""One process a directory, as real processes see it."""

import errno
import os
import subprocess
import sys

import msgspec
import pytest

from metalforge.campaign.store.directory import (
    DirectoryError,
    DirectoryLock,
    DirectoryLockedError,
    may_be_in_use,
    read_holder,
    writable_directory,
)

HOLD = """
import sys
from metalforge.campaign.store.directory import DirectoryError, DirectoryLock
try:
    with DirectoryLock(sys.argv[1]):
        print("held", flush=True)
        sys.stdin.read()
except DirectoryError as error:
    print(error, flush=True)
"""


def start(directory):
    command = [sys.executable, "-c", HOLD, str(directory)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_second_process_is_refused_and_told_who_holds_it(tmp_path):
    with DirectoryLock(tmp_path), start(tmp_path) as second:
        said, _ = second.communicate()
    assert f"{tmp_path}: is in use by process {os.getpid()} on " in said
    assert f"(`kill {os.getpid()}`)" in said


def test_the_lock_of_a_killed_process_is_free_and_its_text_no_obstacle(tmp_path):
    with start(tmp_path) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(DirectoryLockedError, match=f"process {other.pid} on .* UTC"):
            DirectoryLock(tmp_path)
        other.kill()
    assert read_holder(tmp_path).pid == other.pid
    with DirectoryLock(tmp_path):
        assert read_holder(tmp_path).pid == os.getpid()


def test_whether_a_directory_is_in_use_is_seen_without_taking_it(tmp_path):
    assert not may_be_in_use(tmp_path)
    with start(tmp_path) as other:
        assert other.stdout.readline() == "held\n"
        assert may_be_in_use(tmp_path)
        other.kill()
    assert not may_be_in_use(tmp_path)
    with DirectoryLock(tmp_path):
        pass
    holder = msgspec.structs.replace(read_holder(tmp_path), host="elsewhere")
    (tmp_path / "lock").write_bytes(msgspec.json.encode(holder))
    assert may_be_in_use(tmp_path)


def test_closing_gives_the_directory_back(tmp_path):
    lock = DirectoryLock(tmp_path)
    with pytest.raises(DirectoryLockedError, match=f"process {os.getpid()} "):
        DirectoryLock(tmp_path)
    lock.close()
    lock.close()
    with DirectoryLock(tmp_path), pytest.raises(DirectoryLockedError):
        DirectoryLock(tmp_path)


def test_a_child_that_outlives_the_lock_does_not_keep_it(tmp_path):
    with DirectoryLock(tmp_path):
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    with child, DirectoryLock(tmp_path):
        assert child.poll() is None


@pytest.mark.parametrize("text", [b"", b"nonsense", b"\xff\x00", b'{"pid":"1"}'])
def test_any_text_in_the_file_is_no_obstacle(tmp_path, text):
    (tmp_path / "lock").write_bytes(text)
    assert read_holder(tmp_path) is None
    with DirectoryLock(tmp_path):
        (tmp_path / "lock").write_bytes(text)
        with pytest.raises(DirectoryLockedError, match="another process"):
            DirectoryLock(tmp_path)


def failing(code):
    def fail(*arguments, **options):
        raise OSError(code, os.strerror(code))

    return fail


def test_a_read_only_directory_is_a_clear_error(tmp_path, monkeypatch):
    # The superuser may write where the permission bits forbid it, so the system's answer is played.
    monkeypatch.setattr(os, "open", failing(errno.EROFS))
    with pytest.raises(DirectoryError, match=r"lock: .*\(Read-only file system\)"):
        DirectoryLock(tmp_path)


def test_a_file_system_without_locks_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.flock", failing(errno.ENOLCK))
    with pytest.raises(DirectoryError, match=r"no locks.*local"):
        DirectoryLock(tmp_path)


def test_a_missing_directory_cannot_be_locked(tmp_path):
    with pytest.raises(DirectoryError, match=r"nowhere/lock.*\(No such file"):
        DirectoryLock(tmp_path / "nowhere")


def test_a_writable_directory_is_made_and_left_empty(tmp_path):
    directory = writable_directory(tmp_path / "a" / "b")
    assert directory.is_dir()
    assert list(directory.iterdir()) == []
    assert writable_directory(str(directory)) == directory


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_directory_that_takes_no_file_is_named_and_left_empty(tmp_path, monkeypatch, code):
    monkeypatch.setattr(os, "fsync", failing(code))
    with pytest.raises(DirectoryError, match=f".{os.strerror(code)}"):
        writable_directory(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_a_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DirectoryError, match=r"file: .*written"):
        writable_directory(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_permission_bits_are_respected(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(DirectoryError, match="Permission denied"):
        writable_directory(tmp_path)
    with pytest.raises(DirectoryError, match="Permission denied"):
        DirectoryLock(tmp_path)
