"""Chains of a campaign that exchange couplings: ladders in the journal, after a kill, on processes, and when chosen."""

import shutil
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from metalforge.campaign.analysis.evidence import EXCHANGE, PlannedPoints, Want, exchange_pays, finding_of
from metalforge.campaign.analysis.selection import prepare
from metalforge.campaign.calling import SOCKET
from metalforge.campaign.chain_log import ladders_of
from metalforge.campaign.running import planner
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.running.couplings import FREQUENT, RARE, by_couplings, couplings_of, refined
from metalforge.campaign.spec import Budget, Running, WarmUpPolicy
from metalforge.campaign.state import fold
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Estimated
from metalforge.lattice.chain import Chain
from metalforge.statistics.exchange_traffic import Traffic
from reference.loop_series import loop_series
from reference.small_campaigns import ROUNDS

LADDERS = msgspec.structs.replace(
    ROUNDS,
    name="ladders",
    budget=Budget(trajectories=1500),
    warmup=WarmUpPolicy(longest=20, shortest=20),
    steering=msgspec.structs.replace(ROUNDS.steering, visit=40),
    running=Running(block=30, deterministic=True, producers=2, checkpoint_s=0.0, exchange="on"),
)
HMC = msgspec.structs.replace(
    LADDERS,
    name="ladders-hmc",
    budget=Budget(trajectories=700),
    theory=msgspec.structs.replace(LADDERS.theory, algorithm="hmc", tau=0.5, n_steps=3),
    steering=msgspec.structs.replace(ROUNDS.steering, visit=20),
)


def ran(spec, directory):
    with Campaign.open(spec, directory) as campaign:
        return campaign.run()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The state of a campaign of ladders that was left alone."""
    return ran(LADDERS, tmp_path_factory.mktemp("whole") / "run")


def rows_of(state):
    return {
        name: {column: chain.column(column, measured=False).tolist() for column in chain.columns}
        for name, chain in state.chains.items()
    }


def ladders(state):
    return {rungs[0].id: rungs for rungs in ladders_of(state.chains.values())}


def test_every_row_has_each_replica_once_and_both_views_are_in_the_journal(whole):
    found = ladders(whole)
    assert len(found) >= 2
    for rungs in found.values():
        assert all(a.coordinate < b.coordinate for a, b in pairwise(rungs))
        assert len({c.rows for c in rungs}) == len({c.warmup for c in rungs}) == 1
        replicas = np.array([c.column("replica", measured=False) for c in rungs])
        streams = sorted(c.stream for c in rungs)
        assert (np.sort(replicas, axis=0) == np.array(streams)[:, None]).all()
        assert (replicas != replicas[:, :1]).any()
    assert whole.trajectories <= 1500


def test_chains_of_a_ladder_measure_together_and_are_used_together(whole):
    points = whole.points((4, 4, 4, 2))
    assert {p.ladder for p in points} == set(ladders(whole))
    assert all(p.start == "" and p.replica is not None and len(p.replica) == len(p.energy) for p in points)
    finding = finding_of(points, PlannedPoints(), seed=1, n_bootstrap=20)
    assert finding.transition is not None
    assert finding.transition.chains == len(points)


@pytest.mark.chaos
@pytest.mark.parametrize("spec", [LADDERS, HMC], ids=["heatbath", "hmc"])
def test_a_ladder_that_is_killed_anywhere_goes_on_bit_for_bit(spec, tmp_path, monkeypatch):
    """The directory as a kill would leave it, at updates of all phases and in the middle of a ladder's checkpoint."""
    update, save = Chain.update, Chain.save
    count, saves, copies = [0], [0], []

    def copy(at):
        copies.append(tmp_path / f"killed-{at}")
        # A file that the other producer is writing may be gone when it is its turn.
        shutil.copytree(tmp_path / "run", copies[-1], ignore=shutil.ignore_patterns(".*.tmp", SOCKET))

    def seen_update(self, **options):
        count[0] += 1
        if count[0] in (3, 131, 333):
            copy(count[0])
        return update(self, **options)

    def seen_save(self, path, **options):
        saves[0] += 1
        if saves[0] == 8:  # some chains of a ladder's checkpoint are written, and others are not
            copy(f"save-{saves[0]}")
        return save(self, path, **options)

    monkeypatch.setattr(Chain, "update", seen_update)
    monkeypatch.setattr(Chain, "save", seen_save)
    state = ran(spec, tmp_path / "run")
    monkeypatch.undo()
    assert len(copies) == 4
    for directory in copies:
        (directory / "lock").unlink(missing_ok=True)
        with Campaign.resume(directory) as campaign:
            assert campaign.run().digest() == state.digest()


@pytest.mark.chaos
def test_ladders_run_on_processes_as_on_threads(whole, tmp_path):
    running = msgspec.structs.replace(LADDERS.running, isolation="process")
    apart = ran(msgspec.structs.replace(LADDERS, running=running), tmp_path / "run")
    assert rows_of(apart) == rows_of(whole)


def test_a_ladder_may_sleep(tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "reason_to_wake", lambda state, dims: None)
    screening = msgspec.structs.replace(LADDERS.screening, variance=5.0)
    state = ran(msgspec.structs.replace(LADDERS, ordering="E", screening=screening), tmp_path / "run")
    assert ladders(state)
    assert state.stopped_by == "asleep"


def test_the_journal_alone_gives_the_ladders_back(whole, tmp_path):
    ran(LADDERS, tmp_path / "run")
    again = fold(read_journal(tmp_path / "run" / JOURNAL))
    assert again.digest() == whole.digest()
    assert {k: [c.id for c in v] for k, v in ladders(again).items()} == {
        k: [c.id for c in v] for k, v in ladders(whole).items()
    }


# -- which couplings ------------------------------------------------------------------------------------------------


def test_the_first_ladder_spans_what_was_asked_for_and_goes_on(whole):
    made = list(by_couplings(list(whole.chains.values())))
    assert (made[0][0], made[0][-1]) == (LADDERS.theory.beta_min, LADDERS.theory.beta_max)
    assert [v.fresh for v in whole.visits[:3]] == [True, True, False]
    assert "asked for" in whole.visits[0].reason


def test_a_ladder_is_refined_where_swaps_are_rare_and_spread_where_they_are_frequent():
    betas = (5.0, 5.1, 5.2, 5.3, 5.4)
    moved = Traffic(np.array([0.9, 0.8, 0.5, 0.1]), 3.0, 100)
    assert refined(betas, moved) == (5.0, 5.2, 5.3, 5.35, 5.4)
    assert refined(betas, Traffic(np.full(4, 0.5), 3.0, 100)) == betas
    assert 0 < RARE < FREQUENT < 1


def estimate_with(*wants):
    return Estimated(
        system=(4, 4, 4, 2), trajectories=1, result=5.1, error=0.01, wants=tuple(wants), evidence=(), established=False
    )


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_exchange_begins_by_itself_where_the_evidence_asks_for_it_and_ends_where_it_does_no_more(tmp_path, mode):
    spec = msgspec.structs.replace(LADDERS, running=msgspec.structs.replace(LADDERS.running, exchange=mode))
    with Campaign.open(spec, tmp_path / "run") as campaign:
        state = campaign.state
        assert couplings_of(state, (4, 4, 4, 2), []) is None
        state.apply(
            estimate_with(Want(coordinate=5.1, reach=0.02, start=EXCHANGE, item="crossings between the phases"))
        )
        found = couplings_of(state, (4, 4, 4, 2), [])
        if mode == "off":
            assert found is None
            return
        assert found is not None
        assert found.coordinates[0] >= 5.04
        assert found.coordinates[-1] <= 5.16
        assert "tunnel" in found.reason
        state.apply(estimate_with())
        assert couplings_of(state, (4, 4, 4, 2), []) is None


def two_phases(rng, beta, *, crossings, rows=1200, first=0):
    """A chain whose |L| sits in two phases and goes from one to the other so many times."""
    phase = np.arange(rows) * (crossings + 1) // rows % 2 ^ first
    loop = 0.1 + 0.3 * phase + 0.02 * rng.normal(size=rows)
    plaquette = 0.42 + 0.01 * phase + 0.0015 * rng.normal(size=rows)
    return loop_series(beta, (8, 8, 8, 2), plaquette, loop.astype(complex), "hot")


@pytest.mark.parametrize(("crossings", "asked"), [(1, True), (60, False)])
def test_chains_that_do_not_tunnel_ask_for_exchange(crossings, asked):
    rng = np.random.default_rng(3)
    points = [two_phases(rng, beta, crossings=crossings) for beta in (5.085, 5.09, 5.095)]
    points[0] = two_phases(rng, 5.085, crossings=0)
    points[2] = two_phases(rng, 5.095, crossings=0, first=1)
    finding = finding_of(points, PlannedPoints(), seed=1, n_bootstrap=20)
    assert any(want.start == EXCHANGE for want in finding.wants) == asked


@pytest.mark.parametrize(
    ("alone", "together", "rows", "asked"),
    # So many crossings of each chain, so many of each replica, in so many rows of a ladder of three.
    [
        (0, None, 0, True),  # none in 3,600 updates is rare beyond doubt,
        (2, None, 0, False),  # six are not
        (20, 1, 900, True),  # on trial
        (4, 2, 1200, False),
        (4, 8, 1200, True),
        (0, 0, 2000, False),
        (0, 1, 2000, True),
    ],
)
def test_the_way_with_more_crossings_for_the_same_work_is_kept_once_both_had_as_much(alone, together, rows, asked):
    rng = np.random.default_rng(3)
    points = [two_phases(rng, beta, crossings=alone, first=i % 2) for i, beta in enumerate((5.088, 5.09, 5.092))]
    ladder = [
        two_phases(rng, beta, crossings=together, first=i % 2, rows=rows)._replace(
            ladder="c9", start="", replica=np.full(rows, float(i))
        )
        for i, beta in enumerate((5.088, 5.09, 5.092) if together is not None else ())
    ]
    assert exchange_pays(points, [*points, *ladder], 0.2, 0.3) == asked


def test_chains_from_before_are_left_out_with_a_word(tmp_path):
    state = ran(ROUNDS, tmp_path / "run")
    points = state.points((4, 4, 4, 2))
    rows = min(len(p.energy) for p in points)
    ladder = [
        p.up_to(rows)._replace(ladder="c9000", start="", replica=np.full(rows, 1.0 * i)) for i, p in enumerate(points)
    ]
    older = [p._replace(superseded=True) for p in points]
    usable, left = prepare([*ladder, *older])
    assert {c.point.ladder for c in usable} == {"c9000"}
    assert sum("exchanged" in out.reason for out in left) == len(older)


def test_every_configuration_of_a_ladder_is_checked_where_that_is_promised(tmp_path):
    spec = msgspec.structs.replace(LADDERS, ordering="D", budget=Budget(trajectories=700))
    state = ran(spec, tmp_path / "run")
    assert ladders(state)
    assert len(state.checks) == sum(c.promised for c in state.chains.values()) == state.trajectories
    assert max(abs(check.drift["plaquette"]) for check in state.checks) < 1e-10


@pytest.mark.chaos
def test_checks_of_a_ladder_that_is_killed_are_made_when_it_goes_on(tmp_path, monkeypatch):
    spec = msgspec.structs.replace(LADDERS, ordering="D", budget=Budget(trajectories=700))
    update, count, copies = Chain.update, [0], []

    def seen(self, **options):
        count[0] += 1
        if count[0] in (90, 333, 601):
            copies.append(tmp_path / f"killed-{count[0]}")
            shutil.copytree(tmp_path / "run", copies[-1], ignore=shutil.ignore_patterns(SOCKET))
        return update(self, **options)

    monkeypatch.setattr(Chain, "update", seen)
    whole = ran(spec, tmp_path / "run")
    monkeypatch.undo()
    for directory in copies:
        with Campaign.resume(directory) as campaign:
            state = campaign.run()
        assert state.digest() == whole.digest()
        assert state.checked == sum(c.promised for c in state.chains.values()) == state.trajectories
        assert not any(chain.unchecked for chain in state.chains.values())


def test_a_damaged_checkpoint_of_a_ladder_is_named(tmp_path):
    with Campaign.open(LADDERS, tmp_path / "run") as campaign:
        updates = [0]
        update = Chain.update

        def until_enough(self, **options):
            updates[0] += 1
            if updates[0] == 500:
                campaign.interrupt("enough")
            return update(self, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Chain, "update", until_enough)
            campaign.run()
    files = sorted((tmp_path / "run" / "chains").glob("*.h5"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:-2000])
    with Campaign.resume(tmp_path / "run") as campaign, pytest.raises(Exception, match="checkpoint") as caught:
        campaign.run()
    assert any(f"remove {file}" in str(caught.value) for file in files)
