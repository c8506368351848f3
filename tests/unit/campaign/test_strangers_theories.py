"""What somebody's theory gives: fields of other types, couplings without a coordinate, no sound update."""

from math import inf, nan

import msgspec
import numpy as np
import pytest

from metalforge.campaign import theory as theories
from metalforge.campaign.array_chain import ArrayRun, ChainAddress
from metalforge.campaign.extending import Extension, asked_beside, extended
from metalforge.campaign.running import planner
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.spec import Budget, CampaignSpec, Running
from metalforge.campaign.theory import Place, Theory, TheoryWords
from metalforge.core.errors import InternalError, MetalforgeError, SpecError
from metalforge.core.rows import ChainFaultError, CountedWarmUp
from metalforge.pipeline import DeadlockError, PipelineError, StageCrashError


class Coins(Theory, frozen=True, kw_only=True, tag="coins"):
    """Coins that fall on heads with a probability that grows with K = 1/T."""

    sizes: tuple[tuple[int], ...] = ((20,),)
    fails: bool = False

    low, high = 0.4, 0.6
    words = TheoryWords(
        coordinate="K",
        axis="K",
        coupling="T",
        coupling_like="2",
        system="bag",
        system_like="30",
        found="T_c",
        missing="T_c not located",
        error_of="on K_c",
        figure="",
        shows=("", ""),
        columns=("K", "heads", "chi"),
    )

    @property
    def systems(self):
        return self.sizes

    def at(self, coupling):
        return 1 / coupling

    coupling = at

    def of(self, systems):
        if max(map(max, systems)) > 1000:
            raise IndexError("no bag is so large")
        return msgspec.structs.replace(self, sizes=tuple(systems))

    def within(self, low, high):
        return self

    def begin(self, place, numbers):
        return {"coins": numbers.random(place.system)}

    def update(self, arrays, place, numbers):
        arrays["coins"][:] = numbers.random(place.system) < place.at
        heads = float(arrays["coins"].sum())
        return {"energy": nan if self.fails else -heads, "order": heads / place.system[0]}


def chained(error, cause):
    error.__cause__ = cause
    return error


@pytest.fixture
def coins(monkeypatch):
    monkeypatch.setitem(theories._KINDS, "coins", Coins)
    return Coins


def spec(**fields):
    running = Running(deterministic=True, producers=2)
    return CampaignSpec(theory=Coins(**fields), budget=Budget(trajectories=4000), running=running)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"systems": ((8, 8),)}, "a bag has 1 numbers. Got (8, 8)"),
        ({"systems": ((8.5,),)}, "int"),
        ({"systems": ((2000,),)}, "IndexError: no bag is so large"),
        ({"couplings": (0.0,)}, "`T` must have a K, and 0 has none"),
        ({"couplings": (inf, nan)}, "`T` must have a K, and nan has none"),
        ({"couplings": (2.0, 0.0), "widen": True}, "`T` must have a K, and 0 has none"),
    ],
)
def test_what_a_theory_cannot_make_of_a_request_is_an_error_of_the_request(coins, asked, said):
    with pytest.raises(SpecError) as raised:  # what it says is looked at below
        asked_beside(spec(), Extension(**asked))
    assert said in str(raised.value)


def test_a_running_campaign_refuses_the_same(coins, tmp_path):
    with Campaign.open(spec(), tmp_path / "run") as campaign:
        state = campaign.state
        with pytest.raises(SpecError, match="has 1 numbers"):
            extended(state, Extension(systems=((8, 8),)))
        with pytest.raises(SpecError, match="0 has none"):
            extended(state, Extension(remove=(0.0,)))


def test_a_theory_without_a_sound_update_ends_the_campaign(coins, tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "MOST_FAILED", 6)
    with Campaign.open(spec(fails=True), tmp_path / "run") as campaign, pytest.raises(SpecError) as raised:
        campaign.run()
    assert "6 chains failed before they had a row" in str(raised.value)
    assert "no finite observables" in str(raised.value)
    assert "[coins]" in str(raised.value)
    assert 6 <= len(campaign.state.chains) <= 10


def test_configurations_that_the_theory_calls_unsound_give_no_row(coins, tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "MOST_FAILED", 6)
    monkeypatch.setattr(coins, "unsound", lambda self, arrays, place: "the coins are glued together", raising=True)
    with Campaign.open(spec(), tmp_path / "run") as campaign, pytest.raises(SpecError, match="glued"):
        campaign.run()
    assert not any(chain.rows for chain in campaign.state.chains.values())


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (chained(PipelineError("stage x failed"), SpecError("no such thing")), SpecError),
        (chained(PipelineError("stage x failed"), ChainFaultError("past the gate")), InternalError),
        (chained(DeadlockError("every stage waits"), None), InternalError),
        (chained(StageCrashError("a process died 4 times"), OSError("connection closed")), StageCrashError),
    ],
)
def test_a_campaign_raises_what_its_stages_failed_of(coins, tmp_path, monkeypatch, error, kind):
    def spell(self):
        raise error

    monkeypatch.setattr(Campaign, "_spell", spell)
    with Campaign.open(spec(), tmp_path / "run") as campaign, pytest.raises(MetalforgeError) as raised:
        campaign.run()
    assert type(raised.value) is kind
    assert str(raised.value) == str(error if kind is StageCrashError else error.__cause__ or error)


@pytest.mark.parametrize(("made", "first"), [(0, 0), (3, 3), (3, 1), (3, 0)])
def test_checkpoints_hold_any_number_of_rows(coins, tmp_path, made, first):
    address = ChainAddress(Coins(), Place((20,), 0.5, "hot"), 1, 2)
    run, whole = (ArrayRun(address, CountedWarmUp(total=2)) for _ in range(2))
    for _ in range(made):
        run.step()
    run.save(tmp_path / "chain.npz", first=first)
    found = ArrayRun.load(tmp_path / "chain.npz", address)
    assert (found.log.first, found.log.end) == (first, made)
    for _ in range(5):
        whole.step()
    for _ in range(made, 5):
        found.step()
    assert {name: values[first:] for name, values in whole.log.columns.items()} == found.log.columns
    assert np.array_equal(whole.arrays["coins"], found.arrays["coins"])


def test_a_checkpoint_with_rows_that_it_does_not_count_is_refused(coins, tmp_path):
    address = ChainAddress(Coins(), Place((20,), 0.5, "hot"), 1, 2)
    ArrayRun(address, CountedWarmUp(total=2)).save(tmp_path / "chain.npz")
    with np.load(tmp_path / "chain.npz") as stored:
        forged = dict(stored) | {"row.energy": np.ones(3)}
    np.savez(tmp_path / "chain.npz", **forged)
    with pytest.raises(SpecError, match="must hold 0 rows"):
        ArrayRun.load(tmp_path / "chain.npz", address)


def test_a_campaign_of_it_runs(coins, tmp_path):
    with Campaign.open(spec(), tmp_path / "run") as campaign:
        state = campaign.run()
    assert state.trajectories > 1000
