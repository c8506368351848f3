"""How long a terminal waits for the supervisor of a campaign on a cluster, by a clock that moves when it waits."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from metalforge.cli import far
from metalforge.core.errors import ClusterLostError


class Silent(Exception):  # noqa: N818 - the name it stands for is Ray's
    """No answer in time."""


class Dead(Exception):  # noqa: N818
    """Nobody to answer."""


class Cluster:
    """Answers as it is told: an exception is raised, and a silence takes as long as it was waited for."""

    exceptions = SimpleNamespace(RayActorError=Dead, GetTimeoutError=Silent)

    def __init__(self):
        self.now, self.answers = 0.0, []

    def get(self, answer, timeout):
        if answer is Silent:
            self.now += timeout
        if isinstance(answer, type):
            raise answer("no")
        return answer

    def asked(self):
        return self.answers.pop(0)


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()
    clock = SimpleNamespace(monotonic=lambda: made.now, sleep=lambda s: setattr(made, "now", made.now + s))
    monkeypatch.setattr(far, "time", clock)
    return made


def test_a_supervisor_that_starts_slowly_is_waited_for_and_one_that_fell_silent_is_not(cluster):
    ask = far._Asking(cluster, Path("run"))
    cluster.answers = [Silent, Silent, Silent, "here"]
    assert ask(cluster.asked) == "here"
    assert cluster.now > 3 * far.PATIENCE_S
    cluster.answers = [Silent, Silent]
    with pytest.raises(ClusterLostError, match="is gone: no"):
        ask(cluster.asked)


def test_one_that_is_dead_is_not_waited_for_longer_though_it_never_spoke(cluster):
    ask = far._Asking(cluster, Path("run"))
    cluster.answers = [Dead] * 1000
    with pytest.raises(ClusterLostError, match="is gone"):
        ask(cluster.asked)
    assert far.PATIENCE_S < cluster.now < far.PATIENCE_S + 2


def test_one_that_never_speaks_is_given_up(cluster):
    ask = far._Asking(cluster, Path("run"))
    cluster.answers = [Silent] * 1000
    with pytest.raises(ClusterLostError, match="is gone"):
        ask(cluster.asked)
    assert cluster.now < far.STARTING_S + 2 * far.PATIENCE_S
