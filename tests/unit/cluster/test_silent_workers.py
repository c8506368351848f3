"""A worker of a cluster that does not answer: reported, then ended; by a clock that is set by hand, without Ray."""

from types import SimpleNamespace

import pytest

from metalforge.cluster import nodes
from metalforge.cluster.nodes import LATE_S, SILENT_S, ClusterNode


class Ray:
    """Gives the answers that are there, and notes what is ended."""

    def __init__(self):
        self.answered, self.killed = False, []
        self.kill = self.killed.append

    def wait(self, answers, timeout):
        return (answers, []) if self.answered else ([], answers)

    def get(self, answer):
        return {}


@pytest.fixture
def ray():
    return Ray()


@pytest.fixture
def at(ray, monkeypatch):
    """Return what looks at a node's worker at a time and returns what the journal is told then."""
    clock = [0.0]
    monkeypatch.setattr(nodes, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    worker = SimpleNamespace(ping=SimpleNamespace(remote=object))
    node = ClusterNode(ray, id="1", label="far", cores=1, cards=0, worker=worker, heard=0.0)

    def look(seconds):
        clock[0] = seconds
        return node.ping()

    return look


def test_a_silent_worker_is_reported_once_and_then_ended(at, ray):
    assert LATE_S < 30
    assert at(LATE_S) == ""
    assert f"{LATE_S:g} s" in at(LATE_S + 1)
    assert at(LATE_S + 2) == ""
    assert ray.killed == []
    at(SILENT_S + 1)
    assert len(ray.killed) == 1


def test_one_that_answers_again_may_be_reported_again(at, ray):
    assert at(LATE_S + 1)
    ray.answered = True
    assert at(LATE_S + 2) == ""
    ray.answered = False
    assert at(2 * LATE_S) == ""
    assert at(2 * LATE_S + 3)
    assert ray.killed == []
