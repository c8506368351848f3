"""The steering experiment: tapes are what they say, campaigns live by one set of rules, rows hold together."""

import msgspec
import numpy as np
import pytest

from metalforge.campaign.physics.series import PointSeries
from metalforge.core.errors import SpecError
from metalforge.experiments.protocol import EXPERIMENTS, Settings, quiet
from metalforge.experiments.steering import POOLED, STEERERS, build, compared, full_tape, run, standing
from metalforge.experiments.steering_rows import (
    GOAL,
    SteeringRow,
    TapeReference,
    mean_ratio,
    power_law,
    ratio_interval,
    row_of,
    summarise,
)
from metalforge.experiments.virtual_campaign import (
    LiveSource,
    Rules,
    Tape,
    TapeSource,
    TapeSpec,
    VirtualOutcome,
    run_campaign,
    tape_of,
)
from metalforge.lattice.chain import Chain, ChainSpec
from metalforge.lattice.observables import measure
from metalforge.lattice.warmup import warm_up
from reference.landau_chain import VOLUME, exact_peak, run_chains

SMALL = TapeSpec(dims=(2, 2, 2, 2), betas=(5.0, 5.1, 5.3), updates=(40, 60, 20), warmup=5, seed=3)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tapes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METALFORGE_CACHE", str(folder))
        yield tape_of("tape", SMALL, True), folder


@pytest.fixture(scope="module")
def landau_tape():
    """A tape of the solved model: 4000 rows at 41 beta of 5.6 .. 5.8."""
    betas = tuple(round(5.6 + 0.005 * i, 4) for i in range(41))
    plaquette, loop = run_chains(np.repeat(betas, 8), 500, np.random.default_rng(1))
    rows = np.stack([plaquette, loop, 0 * loop], axis=-1).transpose(1, 0, 2).reshape(41, 4000, 3).astype(np.float32)
    return Tape(TapeSpec(dims=VOLUME, betas=betas, updates=(4000,) * 41), tuple(rows))


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METALFORGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return run(Settings(quick=True), quiet)


def test_a_tape_holds_what_its_chains_measured(small):
    tape, _ = small
    assert [len(rows) for rows in tape.rows] == [40, 60, 20]
    chain = Chain(ChainSpec(dims=(2, 2, 2, 2), beta=5.1, seed=3, stream=1, start="hot"), threads=1)
    warm_up(chain, 5)
    for row in tape.rows[1][:10]:
        chain.update()
        seen = measure(chain.field)
        assert row == pytest.approx([seen.plaquette, seen.polyakov_re, seen.polyakov_im], abs=1e-6)


def test_a_tape_is_made_once_and_again_when_its_file_is_damaged(small):
    tape, folder = small
    (path,) = folder.glob("tape-*.npz")
    made = path.read_bytes()
    tape_of.cache_clear()
    again = tape_of("tape", SMALL, True)
    assert all(np.array_equal(a, b) for a, b in zip(again.rows, tape.rows, strict=True))
    assert path.read_bytes() == made
    path.write_bytes(made[:500])
    tape_of.cache_clear()
    again = tape_of("tape", SMALL, True)
    assert all(np.array_equal(a, b) for a, b in zip(again.rows, tape.rows, strict=True))


def test_the_full_tape_is_dense_at_the_transition_and_reaches_the_ends():
    spec = full_tape(1_000_000)
    assert (min(spec.betas), max(spec.betas)) == (5.0, 6.5)
    assert sum(spec.updates) == pytest.approx(1_000_000, rel=0.001)
    inside = [b for b in spec.betas if 5.6 <= b <= 5.8]
    assert np.diff(inside) == pytest.approx(np.full(40, 0.005))
    assert max(np.diff(spec.betas)) < 0.0251
    with pytest.raises(SpecError, match="ascending"):
        TapeSpec(dims=(4, 4, 4, 4), betas=(5.1, 5.0), updates=(1, 1))


def test_draws_go_on_in_a_circle_and_differ_between_seeds(small):
    tape, _ = small
    source = TapeSource(tape, 1)
    first, second = source.draw(5.08, 25, chain=0), source.draw(5.08, 35, chain=0)
    assert first.beta == 5.1
    drawn = np.concatenate([first.plaquette, second.plaquette]).astype(np.float32)
    start = int(np.flatnonzero(tape.rows[1][:, 0] == drawn[0])[0])
    assert np.array_equal(drawn, np.roll(tape.rows[1][:, 0], -start))
    starts = {TapeSource(tape, seed).draw(5.1, 1, chain=0).plaquette[0] for seed in range(20)}
    assert len(starts) > 5
    with pytest.raises(SpecError, match="holds 20 rows"):
        source.draw(5.3, 21, chain=1)


def test_live_rows_are_a_chain_that_goes_on():
    once, twice = (LiveSource((2, 2, 2, 2), 9, warmup=4) for _ in range(2))
    whole = once.draw(5.2, 12, chain=0)
    halves = [twice.draw(5.2, 6, chain=0) for _ in range(2)]
    assert np.array_equal(whole.plaquette, np.concatenate([half.plaquette for half in halves]))
    assert not np.array_equal(whole.plaquette, once.draw(5.2, 12, chain=1).plaquette)


class Counting:
    """A source that keeps the books."""

    def __init__(self, inner):
        self.inner, self.drawn = inner, {}

    def draw(self, beta, updates, *, chain) -> PointSeries:
        self.drawn.setdefault(chain, []).append((beta, updates))
        return self.inner.draw(beta, updates, chain=chain)


@pytest.mark.parametrize("name", ["uniform", "gaps", "gaussian-process"])
def test_a_campaign_pays_for_every_row_and_warm_up(landau_tape, name):
    source = Counting(TapeSource(landau_tape, 4))
    rules = Rules(budget=6000, warmup=150, n_bootstrap=20)
    outcome = run_campaign(build(name, 5.6, 5.8, VOLUME, rules), source, rules, 1)
    rows = sum(updates for blocks in source.drawn.values() for _, updates in blocks)
    assert outcome.chains == len(source.drawn)
    assert outcome.spent == rows + 150 * outcome.chains
    assert rules.budget - 200 < outcome.spent <= rules.budget
    assert all(len({beta for beta, _ in blocks}) == 1 for blocks in source.drawn.values())
    assert all(updates <= rules.block for blocks in source.drawn.values() for _, updates in blocks)


def test_an_even_scan_is_even_and_a_steered_one_is_at_the_peak(landau_tape):
    rules = Rules(budget=8000, n_bootstrap=20)
    shares, peak = {}, exact_peak()[0]
    for name in ("uniform", "gaussian-process"):
        source = Counting(TapeSource(landau_tape, 4))
        outcome = run_campaign(build(name, 5.6, 5.8, VOLUME, rules), source, rules, 1)
        rows = {blocks[0][0]: sum(updates for _, updates in blocks) for blocks in source.drawn.values()}
        shares[name] = sum(n for beta, n in rows.items() if abs(beta - peak) < 0.025) / sum(rows.values())
        if name == "uniform":
            assert max(rows.values()) - min(rows.values()) <= rules.block
        assert abs(outcome.beta_c - peak) < 0.03
    assert shares["gaussian-process"] > 0.5
    assert shares["gaussian-process"] > 1.5 * shares["uniform"]


def test_the_same_seed_gives_the_same_campaign(landau_tape):
    rules = Rules(budget=4000, n_bootstrap=20)

    def once(seed):
        return run_campaign(build("gaussian-process", 5.6, 5.8, VOLUME, rules), TapeSource(landau_tape, seed), rules, 1)

    assert once(3) == once(3)
    assert once(3) != once(4)


def test_the_conductor_says_that_its_head_is_not_trusted_and_asks_the_process():
    rules = Rules(budget=6000)
    conductor, process = (build(name, 5.6, 5.8, VOLUME, rules) for name in ("conductor", "gaussian-process"))
    asked = conductor.ask(1)[0]
    if not standing().trusted:
        assert asked == process.ask(1)[0]
    with pytest.raises(SpecError, match="steerer"):
        build("dice", 5.6, 5.8, VOLUME, rules)


def test_an_untrusted_conductor_is_the_process_and_stands_in_one_row_with_it(landau_tape, monkeypatch):
    rules = Rules(budget=3000, n_bootstrap=20)
    outcomes = {
        name: run_campaign(build(name, 5.6, 5.8, VOLUME, rules), TapeSource(landau_tape, 3), rules, 1)
        for name in ("conductor", "gaussian-process", POOLED)
    }
    assert not standing().trusted
    assert len(set(outcomes.values())) == 1  # bit for bit
    assert compared() == (POOLED, "gaps", "uniform")
    # A head that has earned it steers by itself, and the two are two.
    monkeypatch.setattr("metalforge.experiments.steering.standing", lambda: standing()._replace(trusted=True))
    assert compared() == STEERERS


def test_figures_of_campaigns_are_those_of_their_definition():
    rng = np.random.default_rng(2)
    errors = 0.003 * rng.normal(size=400)
    outcomes = [VirtualOutcome(6000, 5, 5.69 + e, 0.003) for e in errors] + [VirtualOutcome(6000, 5, 5.72, None)] * 4
    found = summarise(outcomes, TapeReference(5.69, 0.0), 1)
    assert found.rmse == pytest.approx(np.sqrt((np.sum(errors**2) + 4 * 0.03**2) / 404))
    assert found.low < found.rmse < found.high
    assert found.within_one == pytest.approx(0.68, abs=0.07)
    assert found.within_two == pytest.approx(0.95, abs=0.04)
    assert (found.unlocated, found.quoted_error) == (4, pytest.approx(0.003))
    # A reference with an error of its own adds to the rmse and takes from what a draw may be off.
    worse = summarise(outcomes, TapeReference(5.69, 0.002), 1)
    assert worse.rmse == pytest.approx(np.hypot(found.rmse, 0.002))
    assert worse.within_one < found.within_one
    # A tape that holds ten campaigns' rows near the peak: the interval is that of ten.
    shared = [outcome._replace(near=1000) for outcome in outcomes]
    few = summarise(shared, TapeReference(5.69, 0.0, 10_000), 1)
    assert few.independent == 10
    assert few.rmse == found.rmse
    assert few.high - few.low > 3 * (found.high - found.low)


def test_the_ratio_is_that_of_equal_error():
    def cell(n, rmse):
        return summarise([VirtualOutcome(n, 5, 5.69 + rmse, 0.01)], TapeReference(5.69, 0.0), 1)

    even = [cell(n, 0.3 * n**-0.5) for n in (6000, 12000, 24000)]
    a, b = power_law(even)
    assert (a, b) == (pytest.approx(0.3), pytest.approx(0.5))
    # As good as uniform with twice as much: half the trajectories.
    assert row_of("x", "r", 6000, cell(6000, 0.3 * 12000**-0.5), (a, b)).trajectory_ratio == pytest.approx(0.5)
    rows = [row_of("x", "r", n, cell(n, 0.3 * (k * n) ** -0.5), (a, b)) for n, k in ((6000, 2), (12000, 8))]
    assert mean_ratio(rows, "x", "r") == pytest.approx(0.25)


def test_the_interval_of_a_ratio_is_that_of_independent_campaigns():
    def cell(n, rmse, near):
        errors = rmse * np.random.default_rng(n).normal(size=400)
        outcomes = [VirtualOutcome(n, 5, 5.69 + e, rmse, near) for e in errors]
        return summarise(outcomes, TapeReference(5.69, 0.0, 100_000), 1)

    widths = []
    for near in (250, 10_000):  # a tape worth 400 campaigns, and one worth ten
        even = [cell(n, 0.3 * n**-0.5, near) for n in (6000, 12000, 24000)]
        steered = cell(6001, 0.3 * 12000**-0.5, near)
        low, high = ratio_interval(steered, even)
        assert low < 0.5 < high
        widths.append(np.log(high / low))
    assert widths[1] > 3 * widths[0]


def test_rows_have_the_promised_fields_and_hold_together(quick):
    keys = ["steerer", "range", "level", "seeds", "trajectories", "rmse", "low", "high", "quoted_error"]
    keys += ["coverage", "trajectory_ratio"]
    rows = msgspec.json.decode(msgspec.json.encode(quick.rows))
    assert all(list(row) == keys for row in rows)
    again = msgspec.json.decode(msgspec.json.encode(quick.rows), type=list[SteeringRow])
    assert {row.steerer for row in again} == {*compared(), f"live: {compared()[0]}"}
    for row in again:
        assert 0 < row.low <= row.high
        assert row.low <= 1.01 * row.rmse
        assert row.rmse <= 1.01 * row.high
        assert row.trajectories <= row.level
        assert row.trajectory_ratio > 0
        assert row.rmse < 0.2
    assert len(quick.table) == len(rows) + 1
    assert any("reference beta_c" in line for line in quick.words)
    assert any("one algorithm" in line for line in quick.words) is not standing().trusted
    assert any("independent campaigns" in line for line in quick.words)
    assert [f"<= {GOAL}" in asked for asked, _, _ in quick.checks] == [True, True, False]


def test_the_experiment_is_registered():
    assert EXPERIMENTS["steering"].run is run
