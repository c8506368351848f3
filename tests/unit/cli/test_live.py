import io
import threading

import msgspec
import pytest
from rich.console import Console

from metalforge.campaign.state import fold
from metalforge.campaign.store.records import Assigned, Decided
from metalforge.campaign.view import view_of
from metalforge.cli.live import LiveView, plain_lines, render
from reference.campaigns import BEGAN, ending, interrupted, records_of, spec_of


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(scope="module")
def records():
    return records_of(spec_of(name="[bold]odd[/bold]", seconds=100.0, target_error=0.001), rows=120, head=True)


def drawn(view, width=110, height=40):
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    console.print(render(view, width=width, height=height))
    return console.file.getvalue()


def test_a_terminal_shows_chains_estimate_decisions_and_time_left(records):
    text = drawn(view_of(fold(records), records[-1].at))
    for expected in (
        "[bold]odd[/bold]",
        "beta_c = 5.690(11)",
        "5.6700",
        "measured",
        "gaussian-process",
        "about",
        "quenched_length acts",
        "cpu:0, cpu:1 (produces)",
        "target error",
        "per wall second",
        "per CPU s",
    ):
        assert expected in text
    assert max(map(len, text.splitlines())) <= 110


def test_a_narrow_terminal_does_not_overflow(records):
    text = drawn(view_of(fold(records), records[-1].at), width=60)
    assert max(map(len, text.splitlines())) <= 60


VOLUMES = ((8, 8, 8, 4), (12, 12, 12, 4), (10, 10, 10, 4), (16, 16, 8, 4), (6, 6, 6, 4), (24, 24, 24, 4))
WORST = {"algorithm": "hmc", "flavors": 4, "seconds": 1e5, "trajectories": 99999, "joules": 1e6, "target_error": 1e-6}


@pytest.mark.parametrize("volumes", [VOLUMES[:1], VOLUMES[:3], VOLUMES])
@pytest.mark.parametrize("options", [{}, WORST])
@pytest.mark.parametrize("size", [(80, 24), (80, 22), (200, 60)])
def test_everything_fits_the_terminal_with_many_chains_and_volumes(volumes, options, size):
    width, height = size
    records = records_of(spec_of(volumes=volumes, name="n" * 90, **options), rows=60, head=True)
    for end in (records, interrupted(records), ending(records)):
        state = fold(end)
        lines = drawn(view_of(state, state.last_at), width, height).splitlines()
        assert len(lines) <= height
        assert {len(line) for line in lines} == {width}
        # What is always there, whatever else has to go.
        text = "\n".join(lines)
        for word in (
            "beta_c",
            "per wall second",
            "quenched_length acts",
            "cpu:0",
            "gaussian-process",
            f"c{5 * len(volumes) - 1:04d}",
        ):
            assert word in text
        assert ("accepted" in text) == ("algorithm" in options)
        table = [line for line in lines if line[2:5] in ("  c", "> c", "cha")]
        assert len(table) >= 3
        assert not any("\u2026" in line for line in table)


def test_a_decision_is_one_line_however_long_its_reason(records):
    long = [
        msgspec.structs.replace(r, reason="word " * 100) if isinstance(r, Assigned | Decided) else r for r in records
    ]
    state = fold(long)
    text = drawn(view_of(state, state.last_at), 80, 24)
    lines = [line for line in text.splitlines() if "word word" in line and "head" not in line]
    assert len(lines) >= 3
    assert all("\u2026" in line for line in lines)
    assert len(text.splitlines()) <= 24


def test_hmc_and_several_volumes_have_columns_of_their_own(records):
    assert "accepted" not in drawn(view_of(fold(records), records[-1].at))
    spec = spec_of(volumes=((8, 8, 8, 4), (6, 6, 6, 4)), algorithm="hmc", flavors=4, trajectories=9999)
    text = drawn(view_of(fold(records_of(spec, rows=120)), BEGAN + 30), width=120)
    for expected in ("accepted", "CG per solve", "lattice", "6^3x4", "90%"):
        assert expected in text


def test_every_decision_is_said_once_however_often_one_looks(records):
    said, previous = [], None
    state = fold(records[:1])
    for record in records[1:]:
        state.apply(record)
        view = view_of(state, state.last_at)
        said += plain_lines(view, previous)
        previous = view
    visits = [line for line in said if "new chain" in line]
    assert [f"c{i:04d}" in line for i, line in enumerate(visits)] == [True] * 5
    assert sum("warmup-ends" in line for line in said) == 5
    assert sum("quenched_length acts" in line for line in said) == 1
    assert sum("beta_c = " in line for line in said) == 4  # each new estimate
    assert plain_lines(previous, previous) == []


def test_progress_is_said_every_five_seconds(records):
    view = view_of(fold(records), records[-1].at)
    assert view.elapsed_s == 10.0
    before = msgspec.structs.replace(view, elapsed_s=9.75)
    assert [line for line in plain_lines(view, before) if "updates, " in line] != []
    later = msgspec.structs.replace(view, elapsed_s=12.0)
    assert plain_lines(later, view) == []


def test_decisions_that_passed_unseen_are_counted(records):
    state = fold(records)
    first = view_of(fold(records[:3]), BEGAN)
    lines = plain_lines(view_of(state, state.last_at, last_decisions=2), first)
    assert any("decisions before these" in line for line in lines)


def test_a_pipe_gets_lines_and_the_end(records):
    stream = io.StringIO()
    with LiveView(stream=stream) as live:
        for state in (fold(records), fold(ending(records))):
            live.show(view_of(state, state.last_at))
    text = stream.getvalue()
    assert text.startswith("[bold]odd[/bold]: 8^3x4, beta 5.6 .. 5.8, heatbath, ordering C\n")
    assert text.endswith("finished: the budget in seconds was spent\n")
    assert "\x1b" not in text


def test_an_interruption_says_how_to_go_on(records):
    state = fold(interrupted(records))
    assert plain_lines(view_of(state, state.last_at), None)[-1].endswith(
        "interrupted (SIGTERM); metalforge resume goes on"
    )


def test_a_source_is_asked_from_another_thread_and_once_more_at_the_end(records):
    asked, seen = threading.Event(), []

    def source():
        seen.append(threading.current_thread().name)
        asked.set()
        state = fold(records if len(seen) < 2 else ending(records))
        return view_of(state, state.last_at)

    stream = io.StringIO()
    with LiveView(source, stream=stream):
        assert asked.wait(20)
    assert seen[0] == "live-view"
    assert seen[-1] == threading.current_thread().name
    assert "finished" in stream.getvalue()


def test_a_terminal_is_drawn_over(records, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    state = fold(ending(records))
    with LiveView(stream=stream) as live:
        live.show(view_of(state, state.last_at))
        live.show(view_of(state, state.last_at))
    assert stream.getvalue().count("finished: the budget") >= 2
    assert "\x1b[1A" in stream.getvalue()  # the cursor goes up to draw over the first view
