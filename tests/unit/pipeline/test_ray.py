"""The same graph on Ray: same results, and a killed actor loses and repeats nothing. Needs the extra `ray`."""

import importlib
import os
import subprocess
import sys
import warnings
from itertools import accumulate
from pathlib import Path

import pytest

from metalforge.pipeline import Chain, Collect, Edits, Pipeline, PipelineBuilder, PipelineError, from_toml
from metalforge.substrates import discover
from reference.pipeline_stages import Numbers, RunningSum, ancestry, increment

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = importlib.import_module("ray")
    there = [ROOT / "tests", ROOT / "examples", *filter(None, [os.environ.get("PYTHONPATH")])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(
            num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False,
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(map(str, there))}},
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


@pytest.mark.filterwarnings("ignore")
def test_the_shipped_qcd_graph_runs_on_ray(cluster, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    text = (ROOT / "examples" / "qcd_pipeline.toml").read_text()
    text = text.replace("updates = 40", "updates = 16").replace("updates = 80", "updates = 20")
    shipped = from_toml(text, {s.info.name: s for s in discover().substrates})
    passed = Collect()
    edits = Edits().add_stage("passed", None, passed).add_edge("npu_screen", "passed")
    run = Pipeline(edits.apply(shipped.graph)).run("ray")
    assert not run.failures
    assert run.metrics("steer").items_processed == len(passed.items) > 0
    assert all(0.4 < item.payload.plaquette < 0.7 for item in passed.items)


@pytest.mark.filterwarnings("ignore")
def test_a_resource_that_no_node_has_ends_the_run_and_is_named(cluster):
    with pytest.raises(PipelineError, match="1 moon of which the cluster has 0") as caught:
        graph(increment, Collect()).run("ray", resources={"middle": {"resources": {"moon": 1}}}, start_s=8.0)
    assert "middle" in str(caught.value)


def test_ray_listens_on_the_loopback_interface_unless_told():
    script = """
from metalforge.pipeline import Collect, PipelineBuilder
run = PipelineBuilder().stage("in", None, [1]).stage("out", None, Collect()).edge("in", "out").build().start("ray")
import ray
print(ray.util.get_node_ip_address())
run.wait()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.split()[-1:] == ["127.0.0.1"], done.stderr
