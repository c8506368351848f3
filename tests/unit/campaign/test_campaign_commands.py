"""Commands to a campaign that runs, by its socket: each of them, what is refused, and what a pause leaves alone."""

import json
import shutil
import socket
import threading

import msgspec
import pytest
from typer.testing import CliRunner

from metalforge.campaign.calling import SOCKET, ControlError, address_in, command
from metalforge.campaign.extending import Extension
from metalforge.campaign.running import controls
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.spec import Budget, load_spec
from metalforge.campaign.state import fold
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Commanded, Extended, Interrupted, Resumed
from metalforge.campaign.view import view_of
from metalforge.cli.main import assembled
from metalforge.core.errors import SpecError
from reference.commanded_campaigns import LONG, Running, running
from reference.small_campaigns import ROUNDS

SHORT = msgspec.structs.replace(ROUNDS, budget=Budget(trajectories=1000))


def records_of(directory, kind):
    return [record for record in read_journal(directory / JOURNAL) if isinstance(record, kind)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with running(tmp_path_factory.mktemp("shared") / "run") as one:
        yield one


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    with Campaign.open(SHORT, tmp_path_factory.mktemp("alone") / "run") as campaign:
        return campaign.run()


def raw(directory, line):
    """Send bytes and return what comes back."""
    with socket.socket(socket.AF_UNIX) as connection, address_in(directory) as address:
        connection.connect(address)
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").read()


@pytest.mark.parametrize("isolation", ["thread", pytest.param("process", marks=pytest.mark.chaos)])
def test_a_campaign_that_was_paused_has_the_rows_of_one_that_was_not(tmp_path, alone, isolation):
    spec = msgspec.structs.replace(SHORT, running=msgspec.structs.replace(SHORT.running, isolation=isolation))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        one = Running(campaign)
        for updates in (70, 300):
            one.until(lambda state, updates=updates: state.trajectories >= updates)
            assert one.command("pause").accepted
            rows = campaign.state.trajectories
            assert view_of(campaign.state, campaign.state.last_at).status == "paused"
            assert not one.command("pause").accepted
            one.until(lambda state: state.samples and state.samples[-1].paused)
            assert campaign.state.trajectories == rows
            assert one.command("resume").accepted
        one.thread.join()
        state = campaign.state
    assert state.finished is not None
    assert [(v.chain, v.coordinate, v.reason) for v in state.visits] == [
        (v.chain, v.coordinate, v.reason) for v in alone.visits
    ]
    for name, chain in alone.chains.items():
        for column, values in chain.columns.items():
            assert state.chains[name].columns[column].array().tobytes() == values.array().tobytes()
    assert [c.what for c in state.commands if c.accepted] == ["pause", "resume"] * 2
    assert not (tmp_path / "run" / SOCKET).exists()


def test_time_in_which_it_is_paused_is_no_compute(alone):
    state = fold([alone.opened])
    began = alone.opened.at
    by = {"by": "anna (page)", "accepted": True}
    state.apply(Commanded(at=began + 10.0, what="pause", **by))
    state.apply(Commanded(at=began + 20.0, what="pause", by="bert (page)", accepted=False, reason="it is paused"))
    assert state.elapsed(began + 500.0) == 10.0
    assert view_of(state, began + 21.0).ending == "by anna (page)"
    state.apply(Commanded(at=began + 500.0, what="resume", **by))
    assert state.elapsed(began + 503.0) == 13.0
    state.apply(Commanded(at=began + 504.0, what="pause", **by))
    state.apply(Resumed(at=began + 900.0, package_version="", isa=""))  # it was killed meanwhile
    assert state.elapsed(began + 901.0) == 15.0
    state.apply(Commanded(at=began + 902.0, what="pause", **by))
    state.apply(Interrupted(at=began + 999.0, reason="", trajectories=0, seconds=state.elapsed(began + 999.0)))
    assert (state.seconds, state.pause) == (16.0, None)


def test_extensions_of_a_running_campaign_are_those_of_resume(tmp_path):
    """Asked of a campaign that pauses, and of a copy of its directory in which nobody is."""
    wanted = [
        ("extend", {"trajectories": 90_000, "target_error": 0.001}, Extension(trajectories=90_000, target_error=0.001)),
        ("steerer", {"name": "uniform"}, Extension(steerer="uniform")),
        ("system", {"system": (8, 8, 8, 2)}, Extension(systems=((8, 8, 8, 2),))),
        ("coupling", {"at": "5.05,5.4", "widen": True}, Extension(couplings=(5.05, 5.4), widen=True)),
        ("remove", {"at": 5.4}, Extension(remove=(5.4,))),
    ]
    with running(tmp_path / "run") as one:
        one.command("pause")
        for number, (what, asked, more) in enumerate(wanted):
            copy = shutil.copytree(one.directory, tmp_path / str(number), ignore=shutil.ignore_patterns(SOCKET))
            answer = one.command(what, **asked)
            assert answer.accepted, answer.said
            with Campaign.resume(copy, more=more) as campaign:
                assert campaign.spec == one.campaign.spec == load_spec(one.directory / "spec.toml")
        last = records_of(one.directory, Extended)[-1]
        assert (last.spec, last.by) == (one.campaign.spec, records_of(one.directory, Commanded)[-1].by)
        assert last.by.endswith("(python)")
        visits = len(one.state.visits)
        one.command("resume")
        # Points that were asked for come first, the steerer's then, and the volume that was added has its share.
        one.until(lambda state: {v.by for v in state.visits[visits:]} >= {"user", "uniform"})
        assert any(visit.system == (8, 8, 8, 2) for visit in one.state.visits[visits:])


def test_two_campaigns_listen_at_once_each_for_its_owner_alone_and_below_long_paths(tmp_path):
    deep = tmp_path / ("a" * 100) / ("b" * 100) / "run"
    deep.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as dead, address_in(deep) as address:
        dead.bind(address)  # what a process that was killed leaves
    with running(deep) as one, running(tmp_path / "short") as other:
        assert [(each.directory / SOCKET).stat().st_mode & 0o777 for each in (one, other)] == [0o600, 0o600]
        assert one.command("pause").accepted
        assert not other.command("resume").accepted
        assert (one.state.pause is None, other.state.pause is None) == (False, True)
        assert one.command("stop").accepted
        one.thread.join()
        assert "stopped by" in one.state.interruption.reason
        assert not (deep / SOCKET).exists()
        with pytest.raises(ControlError, match="no campaign runs"):
            one.command("pause")
        assert not other.command("resume").accepted


def test_one_that_was_killed_while_it_paused_goes_on_unless_nobody_asked_it_to(tmp_path):
    with running(tmp_path / "run") as one:
        one.command("pause")
        killed = [shutil.copytree(one.directory, tmp_path / n, ignore=shutil.ignore_patterns(SOCKET)) for n in "ab"]
    with Campaign.resume(killed[0]) as campaign:
        rows = campaign.state.trajectories
        again = Running(campaign)
        again.until(lambda state: state.trajectories > rows)
        again.command("stop")
        again.thread.join()
    with Campaign.resume(killed[1], stay_paused=True) as campaign:
        again = Running(campaign)
        again.until(lambda state: state.pause is not None)
        assert campaign.state.pause.by == "supervisor"
        assert campaign.state.trajectories == rows
        again.command("resume")
        again.until(lambda state: state.trajectories > rows)
        campaign.interrupt("test")
        again.thread.join()


def test_a_deterministic_campaign_refuses_what_goes_by_the_clock(tmp_path):
    spec = msgspec.structs.replace(ROUNDS, budget=Budget(trajectories=1_000_000))
    with running(tmp_path / "run", spec) as one:
        assert "deterministic" in one.command("rewire", screen="beside").said
        assert "deterministic" in one.command("extend", seconds=5).said


def test_where_a_campaign_is_on_another_machine_the_line_that_reaches_it_is_said(tmp_path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / SOCKET))
    holder = {"pid": 5, "host": "far-away", "started": "2026-01-01T00:00:00Z"}
    (tmp_path / "lock").write_text(json.dumps(holder))
    with pytest.raises(ControlError, match="far-away") as caught:
        command(tmp_path, "extend", seconds=60, target_error=0.5)
    assert f"ssh far-away metalforge control {tmp_path} extend --seconds 60 --target-error 0.5" in str(caught.value)
    (tmp_path / "lock").write_text(json.dumps(holder | {"host": socket.gethostname()}))
    with pytest.raises(ControlError, match="no campaign runs"):
        command(tmp_path, "pause")
    with pytest.raises(SpecError, match="wants name"):
        command(tmp_path, "steerer")


def test_a_file_in_the_place_of_the_socket_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / SOCKET).write_text("mine")
    with Campaign.open(SHORT, tmp_path / "run") as campaign:
        campaign.interrupt("test")
        state = campaign.run()
    assert any(d.what == "controls" and "no socket" in d.reason for d in state.decisions)
    assert (tmp_path / "run" / SOCKET).read_text() == "mine"


def test_a_campaign_is_extended_while_it_runs(shared):
    answer = shared.command("coupling", at=5.111)
    assert answer.accepted
    shared.until(lambda state: any(visit.coordinate == 5.111 for visit in state.visits))
    assert shared.state.pause is None
    assert 5.111 in shared.campaign.spec.steering.points


@pytest.mark.parametrize(
    ("what", "asked", "word"),
    [
        ("resume", {}, "not paused"),
        ("extend", {"seconds": "much"}, "seconds"),
        ("extend", {"seconds": "-1"}, "positive"),
        ("extend", {"seconds": "nan"}, "positive"),
        ("extend", {"trajectories": "1.5"}, "1.5"),
        ("extend", {"seconds": "60", "trajectories": "null"}, "null"),
        ("extend", {"target_error": "inf"}, "target_error"),
        ("steerer", {"name": "<b>nobody"}, "unknown steerer"),
        ("steerer", {"name": LONG.steering.steerer}, "already"),
        ("system", {"system": "4,4,4,2"}, "already"),
        ("system", {"system": "4,4,4"}, "four"),
        ("system", {"system": "8,8,8,4"}, "N_t"),
        ("coupling", {"at": "-5", "widen": "yes"}, "beta_min"),
        ("coupling", {"at": "50"}, "within the range"),
        ("coupling", {"at": "5.1", "widen": "a lot"}, "yes or no"),
        ("remove", {"at": "4.2"}, "must be one of the campaign"),
        ("coupling", {"at": "1e999"}, "numbers"),
        ("rewire", {"screen": "away"}, "beside"),
    ],
)
def test_what_cannot_be_is_refused_and_written_with_the_reason(shared, what, asked, word):
    spec = shared.campaign.spec
    answer = shared.command(what, **asked)
    assert not answer.accepted
    assert word in answer.said
    written = records_of(shared.directory, Commanded)[-1]
    assert (written.what, written.asked, written.accepted, written.reason) == (what, asked, False, answer.said)
    assert shared.campaign.spec == spec
    assert shared.thread.is_alive()


@pytest.mark.parametrize(
    "line",
    [
        b"", b"\n", b"pause\n", b"[]\n", b"{}\n", b'{"what":"explode"}\n', b'{"what":"pause","sudo":1}\n', b"\xff\n",
        b'{"what":"pause","asked":{"x":"1"}}\n', b'{"what":"extend"}\n', b'{"what":"pause","through":"door"}\n',
        b'{"what":"steerer","asked":{"name":5}}\n', b"[" * 4000 + b"\n", b'{"what":"pause"', b"x" * 10_000,
    ],
)  # fmt: skip
def test_a_line_that_is_no_command_is_answered_and_harms_nobody(shared, line):
    before = len(records_of(shared.directory, Commanded))
    answer = json.loads(raw(shared.directory, line))
    assert not answer["accepted"]
    assert "not a command" in answer["said"]
    assert len(records_of(shared.directory, Commanded)) == before


def test_callers_that_say_nothing_or_do_not_wait_hold_nobody_up(shared, monkeypatch):
    monkeypatch.setattr(controls, "LINE_S", 0.1)
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as gone:
        with address_in(shared.directory) as address:
            silent.connect(address)
            gone.connect(address)
        gone.sendall(b'{"what":"resume"}\n')
        gone.close()
        assert "not paused" in shared.command("resume").said
        assert b"timed out" in silent.makefile("rb").read()


def test_a_socket_closes_with_a_silent_caller_and_a_command_that_is_never_answered(tmp_path, monkeypatch):
    monkeypatch.setattr(controls, "LINE_S", 600.0)
    monkeypatch.setattr(controls, "DONE_S", 600.0)
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as asking:
        commands = controls.CommandSocket(tmp_path)
        with address_in(tmp_path) as address:
            silent.connect(address)
            asking.connect(address)
        asking.sendall(b'{"what":"resume"}\n')
        assert commands.news.wait(60)
        assert commands.take() is not None
        closing = threading.Thread(target=commands.close, daemon=True)
        closing.start()
        closing.join(60)
        assert not closing.is_alive()
        assert controls.OVER in asking.makefile().read()
        assert controls.OVER in silent.makefile().read()


def test_the_screen_is_where_somebody_says_and_stays_there(shared):
    for where, done in (("beside", "beside the way"), ("before", "in the way")):
        assert shared.command("rewire", screen=where).accepted
        shared.until(lambda state, done=done: [d.done for d in state.decisions if d.what == "rewired"][-1:] != []
                     and done in next(d.done for d in reversed(state.decisions) if d.what == "rewired"))  # fmt: skip
        assert shared.state.screen_held.asked == {"screen": where}
        last = next(d for d in reversed(shared.state.decisions) if d.what == "rewired")
        assert last.by == shared.state.screen_held.by
    assert shared.command("rewire", screen="auto").accepted
    assert shared.state.screen_held is None


def test_the_command_line_says_what_the_campaign_says(shared):
    def typed(*words):
        return CliRunner().invoke(assembled("control"), ["control", str(shared.directory), *words])

    done = typed("coupling", "5.222", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"accepted": True, "said": "in force"})
    assert shared.state.commands[-1].by.endswith("(command line)")
    limit = shared.campaign.spec.budget.trajectories + 60
    done = typed("extend", "--trajectories", "60")
    assert (done.exit_code, done.stdout.strip()) == (0, f"now ends at {limit} updates")
    assert shared.campaign.spec.budget.trajectories == limit
    assert "within the range" in str(typed("coupling", "50").exception)
    assert typed("coupling", "5.45", "--widen").exit_code == 0
    assert typed("remove", "5.45").exit_code == 0
    assert shared.campaign.spec.theory == LONG.theory
    assert "not paused" in str(typed("resume").exception)
    assert "unknown command" in str(typed("explode").exception)
    assert "no value" in str(typed("pause", "now").exception)
    done = typed("system", "4,4,4", "--json")
    assert (done.exit_code, json.loads(done.stdout)["accepted"]) == (2, False)
