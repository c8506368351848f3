"""The design's QCD graph: shipped with control edges that never block; as the design writes it, refused."""

import re
import sys
from pathlib import Path

import msgspec
import pytest

from metalforge.pipeline import Collect, Edits, GraphError, Pipeline, from_toml
from metalforge.pipeline.hosts import decode_state, encode_state
from metalforge.substrates import discover

EXAMPLES = Path(__file__).parents[3] / "examples"
TEXT = (EXAMPLES / "qcd_pipeline.toml").read_text()


@pytest.fixture(autouse=True)
def stages_can_be_imported(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    for name in [n for n in sys.modules if n == "qcd" or n.startswith("qcd.")]:
        del sys.modules[name]


def test_the_literal_graph_is_refused_and_the_cycle_is_drawn():
    literal, changed = re.subn(r'channel = \{ kind = "latest" \}', 'channel = { kind = "bounded", capacity = 1 }', TEXT)
    assert changed == 2
    with pytest.raises(GraphError) as caught:
        from_toml(literal)
    assert "npu_screen --Bounded(8)--> steer --Bounded(1)--> " in str(caught.value)
    assert "hint: make the edge that closes it Latest()" in str(caught.value)


def shipped(large=24, small=30):
    """The shipped graph, shorter, with what passes the screen and what the checks find collected."""
    substrates = {s.info.name: s for s in discover().substrates}
    text = TEXT.replace("updates = 40", f"updates = {large}").replace("updates = 80", f"updates = {small}")
    passed, checked = Collect(), Collect()
    edits = Edits().add_stage("passed", None, passed).add_edge("npu_screen", "passed")
    edits.add_stage("checked", None, checked, results=False).add_edge("check_large", "checked")
    return Pipeline(edits.add_edge("check_small", "checked").apply(from_toml(text, substrates).graph)), passed, checked


def in_processes(pipeline):
    edits = Edits()
    for name, spec in pipeline.graph.stages.items():
        if not isinstance(spec.stage, Collect):
            edits.change_stage(name, config=msgspec.structs.replace(spec.config, isolation="process"))
    return Pipeline(edits.apply(pipeline.graph))


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_the_shipped_graph_runs_and_everything_in_equilibrium_is_steered_by(isolation):
    pipeline, passed, checked = shipped()
    run = (pipeline if isolation == "thread" else in_processes(pipeline)).run()
    # Ten updates at each beta are its warm-up.
    assert run.metrics("large_chain").outputs <= 14
    assert (
        0
        < run.metrics("npu_screen").items_processed
        == sum(run.metrics(f"{n}_chain").outputs for n in ("large", "small"))
    )
    assert run.metrics("steer").items_processed == len(passed.items) > 0
    assert not run.failures
    edges = {e.edge: e for e in run.edges()}
    seen = edges["small_chain -> check_small"]
    assert seen.sent + seen.filtered == run.metrics("small_chain").outputs
    assert seen.taken + seen.dropped == seen.sent
    differences = [item.payload.difference for item in checked.items]
    assert all(0 <= d < 1e-5 for d in differences)


def trajectories(producer, n):
    state, made = producer.init(), []
    for _ in range(n):
        state, output = producer.produce(state)
        made += [] if output is None else [output]
    return state, made


def test_the_screen_refuses_what_is_not_in_equilibrium_and_the_device_was_asked():
    from qcd.stages import Producer, Screen

    _, cold = trajectories(Producer(extent=4, beta=5.5, warmup=0), 20)
    screen = Screen()
    screen.bind({s.info.name: s for s in discover().substrates}["akd1000-emulated"])
    state, verdicts = screen.init(), []
    for item in cold:
        state, output = screen.step(state, item)
        verdicts.append(output is item)
    assert verdicts[0] is False  # a start from unit links
    assert all(verdicts[-8:])
    assert state == (sum(verdicts), len(verdicts) - sum(verdicts))
    assert screen._device.statistics().calls == len(cold)
    screen.close()


def test_the_check_is_another_measurement_and_finds_a_wrong_one():
    from dataclasses import replace

    from qcd.stages import Producer, check_precision

    _, made = trajectories(Producer(extent=4, warmup=2), 8)
    differences = [check_precision(item).difference for item in made]
    assert 0 < max(differences) < 1e-5
    with pytest.raises(ValueError, match="NumPy"):
        check_precision(replace(made[0], plaquette=made[0].plaquette + 1e-4))


def test_a_chain_warms_up_when_beta_changes_and_continues_bit_for_bit_from_its_state():
    from qcd.stages import Producer, Suggestion

    producer = Producer(extent=4, updates=60, beta=5.5, warmup=4)
    state, made = trajectories(producer, 10)
    assert len(made) == 6
    state, _ = producer.step(state, Suggestion(5.7))
    saved = encode_state(producer.state(state))
    outputs = []
    for start in (state, producer.restore(decode_state(saved))):
        seen = []
        for _ in range(7):
            start, output = producer.produce(start)
            seen.append(None if output is None else (output.beta, output.plaquette))
        outputs.append(seen)
    assert outputs[0] == outputs[1]
    assert outputs[0][:4] == [None] * 4
    assert all(beta == 5.7 for beta, _ in outputs[0][4:])
