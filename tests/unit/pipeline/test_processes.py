"""Stages in processes of their own: crashes, replay, shared memory; nothing lost, nothing repeated, nothing left."""

import os
import subprocess
import sys
from itertools import accumulate

import numpy as np
import pytest

from metalforge.core import SpecError
from metalforge.pipeline import Collect, PipelineBuilder, StageCrashError
from metalforge.pipeline.graph import StageSpec
from metalforge.pipeline.items import Item, ItemId
from metalforge.pipeline.processes import ProcessHost
from reference.pipeline_stages import AlwaysDies, Frail, Hangs, Numbers, RunningSum, Unsaveable, ancestry, double_array


def chain(source, stage, sink, **options):
    builder = (
        PipelineBuilder().stage("source", None, source).stage("middle", None, stage, isolation="process", **options)
    )
    return builder.stage("sink", None, sink).edge("source", "middle").edge("middle", "sink").build()


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_a_killed_process_continues_from_its_checkpoint_and_the_sink_sees_every_item_once(tmp_path):
    before = open_files()
    sink = Collect()
    stage = RunningSum(deadly=(3, 10, 11), notes=str(tmp_path))
    run = chain(Numbers(20), stage, sink, checkpoint_every=4).run()
    assert sink.payloads == list(accumulate(range(20)))
    assert [item.id.sequence for item in sink.items] == list(range(20))
    assert run.metrics("middle").restarts == 3
    assert run.workers["middle"].host.replayed > 0
    assert open_files() == before


def test_an_item_that_always_kills_is_reported_and_the_stage_goes_on():
    sink = Collect()
    run = chain(Numbers(4), AlwaysDies(), sink, on_error="skip", restarts=1).run()
    assert sink.payloads == [0, 2]
    assert [(f.item.sequence, f.kind) for f in run.failures] == [(1, "StageCrashError"), (3, "StageCrashError")]


def test_the_same_without_skip_fails_the_run_with_stage_and_item():
    with pytest.raises(Exception, match="died 1 times on one item") as caught:
        chain(Numbers(4), AlwaysDies(), Collect(), restarts=0).run()
    assert caught.value.failure.stage == "middle"
    assert caught.value.failure.item == ItemId("source", "source", 1)
    assert isinstance(caught.value.__cause__, StageCrashError)


def test_large_arrays_go_through_shared_memory_and_come_back_writable_and_right():
    arrays = [np.full((256, 256), float(i)) for i in range(3)]
    sink = Collect()
    run = chain(arrays, double_array, sink).run()
    for i, payload in enumerate(sink.payloads):
        np.testing.assert_array_equal(payload, np.full((256, 256), 2.0 * i))
        payload[0, 0] = -1.0
    np.testing.assert_array_equal(arrays[1], np.full((256, 256), 1.0))  # the sender's own array is its own
    assert run.metrics("middle").items_processed == 3


def test_it_really_is_another_process():
    sink = Collect()
    chain(Numbers(1), ancestry, sink).run()
    assert sink.payloads[0] != os.getpid()


def test_a_closure_is_refused_with_a_hint():
    with pytest.raises(SpecError, match=r"into a process[\s\S]*hint") as caught:
        ProcessHost(
            StageSpec(
                name="x", stage=__import__("metalforge.pipeline.stages", fromlist=["as_stage"]).as_stage(lambda x: x)
            )
        ).open()
    assert "module" in str(caught.value)


def test_a_configuration_survives_a_crash(tmp_path):
    host = ProcessHost(StageSpec(name="sum", stage=RunningSum(deadly=(5,), notes=str(tmp_path))))
    host.open()
    try:
        host.step(Item(ItemId("s", "c", 0), 1))
        host.configure(100)
        assert host.step(Item(ItemId("s", "c", 1), 5)) == [106]
        assert host.restarts == 1
    finally:
        host.close()


def test_a_step_past_its_time_is_killed_and_the_stage_goes_on():
    sink = Collect()
    run = chain(Numbers(3), Hangs(), sink, on_error="skip", timeout_s=0.5).run()
    assert sink.payloads == [0, 2]
    assert [f.kind for f in run.failures] == ["StageTimeoutError"]
    assert run.metrics("middle").restarts == 1


KILLED = """
import os, sys, threading
from metalforge.pipeline import Collect, PipelineBuilder, Stage

class Slow(Stage):
    def __init__(self, returns):
        self.returns = returns

    def step(self, state, item):
        parent = os.getppid()
        print("in a step", flush=True)
        while not self.returns or os.getppid() == parent:
            threading.Event().wait(0.001)
        return state, item

if __name__ == "__main__":
    slow = Slow(sys.argv[1] == "returns")
    builder = PipelineBuilder().stage("source", None, lambda: [1]).stage("slow", None, slow, isolation="process")
    builder.stage("sink", None, Collect()).edge("source", "slow").edge("slow", "sink").build().run()
"""


@pytest.mark.parametrize("step", ["returns", "never returns"])
def test_a_process_ends_silently_when_its_parent_is_killed(step, tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), step]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "in a step\n"
        parent.kill()
        # The stage's process has the same streams: they end with it.
        assert parent.communicate(timeout=60) == ("", "")


def test_a_run_that_stops_does_not_wait_for_a_process_that_hangs():
    sink = Collect()
    run = chain(Numbers(3), Hangs(), sink).start()
    run.wait_until(lambda: len(sink.items) == 1, poll=True)
    assert run.stop(1.0)
    assert run.status == "stopped"
    assert sink.payloads == [0]


def test_a_process_killed_while_it_starts_is_started_again(tmp_path):
    sink = Collect()
    run = chain(Numbers(4), Frail(str(tmp_path), at_first=3), sink, restarts=5).run()
    assert sink.payloads == [0, 1, 3, 6]
    assert run.metrics("middle").restarts == 3


def test_a_process_that_never_starts_fails_the_run_after_its_restarts(tmp_path):
    with pytest.raises(StageCrashError, match="middle"):
        chain(Numbers(4), Frail(str(tmp_path), at_first=9), Collect(), restarts=2).run()
    assert len(os.listdir(tmp_path)) == 3


def test_a_process_killed_while_it_comes_back_from_a_timeout_is_started_again(tmp_path):
    sink = Collect()
    stage = Frail(str(tmp_path), later=2, hangs=1)
    run = chain(Numbers(4), stage, sink, restarts=2, on_error="skip", timeout_s=0.5).run()
    assert sink.payloads == [0, 2, 5]
    assert [f.kind for f in run.failures] == ["StageTimeoutError"]
    assert run.metrics("middle").restarts == 3


@pytest.mark.parametrize("from_the_first", [True, False])
def test_a_state_without_bytes_is_refused_at_the_first_item_at_the_latest(from_the_first):
    sink = Collect()
    with pytest.raises(Exception, match="checkpoint") as caught:
        chain(Numbers(40), Unsaveable(from_the_first), sink).run()
    assert len(sink.items) == 0
    assert "state" in str(caught.value)
