"""What figures show is made once: the report draws it and the live page gets it, number by number the same."""

import json

import msgspec
import numpy as np
import pytest

from metalforge.campaign.report.figure_data import (
    MOST_BARS,
    joules_lines,
    memory_of,
    pipeline_figure,
    places_of,
    plane_of,
    silicon_figure,
)
from metalforge.campaign.report.figures import draw_all
from metalforge.campaign.report.parts import compared_campaign
from metalforge.campaign.report.result import Results
from metalforge.campaign.state import fold
from metalforge.campaign.store.records import EMULATED_NPU, BlockDone, Resumed, StageEdge, StageNode
from metalforge.dashboard.following import Followed
from metalforge.dashboard.payloads import chain_sent, encoded, machine_sent, transition_sent
from reference.campaigns import BEGAN, records_of, spec_of
from reference.dashboard_pages import campaign
from reference.watched_campaigns import JOURNAL, ON_0, ON_1, SAMPLES, SCREEN, STEER, graph, lines_of, watched


def sent_of(folder, records):
    followed = Followed(campaign(folder, lines_of(records)))
    followed.advance()
    assert followed.problem == ""
    return followed


def drawn_of(state, beside=()):
    shown = Results(state)
    compared = [compared_campaign(shown), *beside] if beside else []
    return {one.name: one.figure for one in draw_all(shown, compared)}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A watched campaign as the page follows it, and the figures of its report."""
    followed = sent_of(tmp_path_factory.mktemp("watched"), watched(rows=800))
    other = compared_campaign(Results(followed.state))
    return followed, drawn_of(followed.state, [other])


def plain(value):
    return json.loads(encoded(value))


def points(axis, at=0):
    return [line.get_xydata()[:, 1].tolist() for line in axis.lines[at:]]


def test_overlap_samples_and_crossings_are_the_same_in_report_and_page(both):
    followed, figures = both
    (support,) = plain(transition_sent(followed))["support"]
    shared, samples = figures["overlap"].axes
    assert [low for low, *_ in points(shared)[:4]] == pytest.approx([value for _, _, value in support["overlaps"]])
    assert points(samples)[:2] == [[c["own"] for c in support["chains"]], [c["carried"] for c in support["chains"]]]
    history, counts = figures["crossings"].axes
    crossed = [line for line in counts.lines if line.get_marker() == "o"]
    assert [line.get_ydata()[0] for line in crossed] == [c["crossings"] for c in support["chains"]]
    nearest = next(c for c in support["chains"] if c["chain"] in history.get_title(loc="left"))
    assert history.lines[-1].get_xdata().tolist() == nearest["marks"]
    assert sum(c["carried"] for c in support["chains"]) == pytest.approx(
        Results(followed.state).systems[0].transition.n_effective
    )


def test_plane_and_memory_of_a_chain_are_the_same_in_report_and_page(both):
    followed, figures = both
    for axis in figures["loop-plane"].axes:
        chain = axis.get_title(loc="center").partition(":")[0]
        re, im, _, _ = plain(chain_sent(followed, chain))["plane"]
        assert axis.lines[-1].get_xydata().T.tolist() == [re, im]
    (axis,) = figures["autocorrelation"].axes
    shown = [line for line in axis.lines if ":" in line.get_label()]
    assert len(shown) == 4
    for line in shown:
        rho, window, tau, _ = plain(chain_sent(followed, line.get_label().partition(":")[0]))["memory"]
        assert line.get_ydata().tolist() == rho
        assert window < len(rho)
        assert tau > 0


def test_campaigns_beside_each_other_are_the_same_in_report_and_page(both):
    followed, figures = both
    sent = plain(transition_sent(followed))
    chi = figures["compared"].axes[1]
    curve = sent["figure"]["systems"][0]["curve"]
    solid = [line.get_ydata().tolist() for line in chi.lines if line.get_linewidth() == 1.4]
    assert sum(map(len, solid)) == 2 * len(curve[4])
    assert np.concatenate(solid[: len(solid) // 2]).tolist() == curve[4]
    assert (sent["columns"][:3], sent["line"][0]) == (["campaign", "found", "updates"], "model")
    assert sent["line"][1].startswith(f"\u03b2c = {sent['quoted']}")
    assert sent["line"][2] == str(followed.state.trajectories)
    assert (sent["line"][4], sent["line"][5]) == ("not known", f"cpu:0; cpu:1; {EMULATED_NPU}")


def test_a_chain_that_is_short_or_stuck_has_no_memory_and_an_empty_one_no_plane():
    assert memory_of(np.zeros(3)) is None
    assert memory_of(np.ones(500)) is None
    assert plane_of(np.zeros(0, dtype=np.complex128)).reach == 0.0
    assert plane_of(np.full(10_000, 0.5j)).im.size <= 500


def test_rates_are_differences_of_sums_and_the_bottleneck_is_named(both):
    followed, figures = both
    upto = [r for r in watched(rows=800) if r.at < BEGAN + SAMPLES]
    before = pipeline_figure(fold(upto))
    by_name = {stage.name: stage for stage in before.stages}
    assert before.window_s == pytest.approx(10.0)
    assert by_name[ON_0].per_second == pytest.approx(3.0, abs=0.1)
    assert by_name[SCREEN].busy == pytest.approx(0.1)
    assert {stage.name for stage in before.stages if stage.slowest} == {ON_0, ON_1}
    assert before.bottleneck.startswith(f"{ON_0} and {ON_1} are the bottleneck: busy 90%")
    assert STEER in before.bottleneck
    blocked = {(edge.source, edge.target): edge.blocked for edge in before.edges}
    assert (blocked[ON_0, SCREEN], blocked[SCREEN, JOURNAL], blocked[STEER, ON_0]) == ("put", "get", "")
    sent = plain(machine_sent(followed))["pipeline"]
    texts = [text.get_text() for text in figures["pipeline"].axes[0].texts if text.get_text()]
    assert [text.partition("\n")[0] for text in texts] == [stage["name"] for stage in sent["stages"]]
    assert figures["pipeline"].axes[0].get_title(loc="left") == sent["bottleneck"]


def test_a_rewiring_changes_the_picture_and_is_marked(both):
    sent = plain(machine_sent(both[0]))["pipeline"]
    assert (sent["ordering"], sent["rewired"]) == ("A", [SAMPLES])
    assert SCREEN not in [stage["name"] for stage in sent["stages"]]
    paused = fold([*watched(rows=50)[:-1]])
    paused.samples[-1] = msgspec.structs.replace(paused.samples[-1], paused=True)
    assert "paused" in pipeline_figure(paused).bottleneck


def test_stages_stand_where_items_flow_to_the_right_and_cycles_end():
    places = places_of(graph(0.0).stages, graph(0.0).edges)
    assert [places[name][0] for name in (STEER, ON_0, ON_1, SCREEN, JOURNAL)] == [0, 1, 1, 2, 3]
    assert places[ON_0][1] != places[ON_1][1]
    round_about = [StageEdge(source=a, target=b, channel="") for a, b in ("ab", "ba", "bc", "xa")]
    assert set(places_of([StageNode(name=n, substrate=None) for n in "abc"], round_about)) == set("abc")


def test_silicon_is_the_same_in_report_and_page_and_sources_stay_apart(both):
    followed, figures = both
    sent = plain(machine_sent(followed))["silicon"]
    work, spent = figures["silicon"].axes
    bars = [[box.get_extents().x0 for box in bars.get_paths()] for bars in work.collections]
    assert bars == [lane["began"] for lane in sent["lanes"]]
    assert [lane["emulated"] for lane in sent["lanes"]] == [False, False, True]
    lines = {(line["substrate"], line["source"]): line["joules"] for line in sent["energy"]}
    assert set(lines) >= {("cpu:0", "measured"), (EMULATED_NPU, "modelled")}
    assert [line.get_ydata().tolist() for line in spent.lines[: len(lines)]] == list(lines.values())
    for lane in sent["lanes"]:
        bars = zip(lane["began"], lane["ended"], lane["busy"], strict=True)
        worked = sum((ended - began) * busy for began, ended, busy in bars)
        assert lane["at_once"] == pytest.approx(worked / (sent["high"] - sent["low"]), abs=0.01)
        assert 0 < lane["at_once"] <= 1.0


def test_the_last_minute_is_cut_out_and_many_blocks_are_thinned():
    written = records_of(spec_of(), betas=(5.68,), rows=100)
    block = next(r for r in written if isinstance(r, BlockDone))
    state = fold(written)
    for _ in range(20_000):
        at = state.last_at + 1.0
        state.apply(msgspec.structs.replace(block, at=at, began=at - 0.75, done=False))
    everything, lately = silicon_figure(state), silicon_figure(state, 60.0)
    lane, last = everything.lanes[0], lately.lanes[0]
    assert len(lane.began) <= 2 * MOST_BARS
    assert lane.at_once == pytest.approx(0.75, rel=0.01)
    assert (lately.high - lately.low, everything.low) == (60.0, 0.0)
    assert last.ended[-1] == lately.high
    assert len(encoded(everything)) < 100_000


def test_joules_of_a_process_that_took_over_are_added_to_those_before():
    written = watched(rows=50)
    again = Resumed(at=written[-1].at + 1, package_version="0", isa="v3")
    state = fold([*written, again])
    last = state.samples[-1]
    state.apply(msgspec.structs.replace(last, at=again.at + 2, window_s=2.0))
    line = next(line for line in joules_lines(state, 0.0) if line.source == "modelled")
    assert line.joules[-1] == pytest.approx(2 * last.energy[1].joules)


def test_early_journals_show_what_they_have():
    written = records_of(spec_of(), rows=100)
    state = fold(written)
    shown = silicon_figure(state)
    assert [lane.at_once for lane in shown.lanes] == [None, None]
    assert "cpu:0" in shown.note
    assert pipeline_figure(state) is None or pipeline_figure(state).edges == ()
