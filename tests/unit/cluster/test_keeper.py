"""The process that keeps a local cluster answers requests for nodes, and outlives those who ask."""

import socket
from types import SimpleNamespace

import pytest

from metalforge.cluster.keeper import Keeper


def refuses(cores):
    raise ValueError(f"no room for {cores} cores")


@pytest.mark.parametrize(("add", "said"), [(lambda cores: cores + 1, b"4\n"), (refuses, b"no room for 3 cores\n")])
def test_a_request_is_answered_with_a_number_or_the_reason(add, said):
    asker, line = socket.socketpair()
    with asker:
        asker.sendall(b"3\n")
        Keeper._answer(SimpleNamespace(add=add), line)
        assert asker.recv(100).endswith(said)


def test_one_who_asked_and_left_is_no_end_of_the_cluster(capsys):
    asker, line = socket.socketpair()
    asker.sendall(b"3\n")
    asker.close()
    Keeper._answer(SimpleNamespace(add=str), line)
    assert "gone" in capsys.readouterr().out
