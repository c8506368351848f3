"""What a Ray actor says before it has a place, with a stand-in for the library: the real one is in `test_ray.py`."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from metalforge.pipeline import PipelineError
from metalforge.pipeline.graph import StageSpec
from metalforge.pipeline.processes import ProcessHost
from metalforge.pipeline.ray_ import StageActor
from reference.pipeline_stages import RunningSum


class GetTimeoutError(Exception):
    """Ray's own, as far as it is used."""


@pytest.fixture
def crowded(monkeypatch):
    """A cluster that places nothing."""
    ray = ModuleType("ray")
    never = SimpleNamespace(remote=lambda *arguments: None)
    actor = SimpleNamespace(__ray_ready__=never, do=never)
    ray.remote = lambda kind: SimpleNamespace(options=lambda **options: SimpleNamespace(remote=lambda: actor))
    ray.exceptions = SimpleNamespace(GetTimeoutError=GetTimeoutError)
    ray.cluster_resources = lambda: {"CPU": 4.0, "node:a": 1.0}
    ray.available_resources = lambda: {"CPU": 0.5}
    ray.nodes = lambda: [{"Alive": True}, {"Alive": False}]
    ray.killed = []
    ray.kill = ray.killed.append

    def get(reference, timeout):
        assert timeout is not None, "would wait for ever"
        raise GetTimeoutError

    ray.get = get
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


def test_an_actor_without_a_place_says_what_is_missing_and_is_not_tried_again(crowded):
    spec = StageSpec(name="sum", stage=RunningSum())
    options = {"num_cpus": 2, "num_gpus": 1}
    host = ProcessHost(spec, lambda spec: StageActor(spec, options, start_s=3.0))
    with pytest.raises(PipelineError, match="3 s") as caught:
        host.open()
    said = str(caught.value)
    assert "2 CPU of which the cluster has 4 (0.5 free)" in said
    assert "1 GPU of which the cluster has 0" in said
    assert "1 of 2 nodes" in said
    assert len(crowded.killed) == 1


def test_an_actor_has_no_process_id_before_it_is_open(crowded):
    assert StageActor(StageSpec(name="sum", stage=RunningSum()), {}).pid is None
