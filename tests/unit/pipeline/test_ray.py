"""The same graph on Ray: same results, and a killed actor loses and repeats nothing. Needs the extra `ray`."""

import os
import warnings
from itertools import accumulate

import pytest

from metalforge.pipeline import Chain, Collect, PipelineBuilder, PipelineError
from reference.pipeline_stages import Numbers, RunningSum, ancestry, increment

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    tests = os.path.join(os.path.dirname(__file__), "..", "..")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(
            num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False,
            runtime_env={"env_vars": {"PYTHONPATH": os.path.abspath(tests)}},
        )  # fmt: skip
    yield
    ray.shutdown()


def graph(stage, sink, **options):
    builder = PipelineBuilder().stage("source", None, Numbers(20)).stage("middle", None, stage, **options)
    return builder.stage("sink", None, sink).topology(Chain("source", "middle", "sink")).build()


@pytest.mark.filterwarnings("ignore")
def test_a_graph_on_ray_gives_what_it_gives_here(cluster):
    here, there = Collect(), Collect()
    graph(increment, here).run()
    graph(increment, there).run("ray")
    assert there.payloads == here.payloads
    assert [i.id for i in there.items] == [i.id for i in here.items]


@pytest.mark.filterwarnings("ignore")
def test_a_killed_actor_continues_from_its_checkpoint(cluster, tmp_path):
    sink = Collect()
    run = graph(RunningSum(deadly=(3, 11), notes=str(tmp_path)), sink, checkpoint_every=4).run("ray")
    assert sink.payloads == list(accumulate(range(20)))
    assert run.metrics("middle").restarts == 2


@pytest.mark.filterwarnings("ignore")
def test_it_runs_elsewhere_and_errors_come_home(cluster):
    sink = Collect()
    graph(ancestry, sink).run("ray")
    assert os.getpid() not in sink.payloads
    with pytest.raises(PipelineError, match="has no len") as caught:
        graph(len, Collect()).run("ray")
    assert caught.value.failure.stage == "middle"
