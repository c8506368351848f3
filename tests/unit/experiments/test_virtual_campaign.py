"""Campaigns in miniature: tapes are what they say, and steerers live by one set of rules."""

import numpy as np
import pytest

from experiments.virtual_campaign import (
    Rules,
    Tape,
    TapeSource,
    TapeSpec,
    run_campaign,
    tape_of,
)
from metalforge.campaign.steerers import Gaps, GaussianProcess, Uniform, even_points
from metalforge.core.errors import SpecError
from metalforge.lattice.campaign.theory import energies, reweighting_reach
from metalforge.lattice.chain import Chain, ChainSpec
from metalforge.lattice.observables import measure
from metalforge.lattice.warmup import warm_up
from reference.landau_chain import VOLUME, exact_peak, run_chains


def build(name, low, high, dims, rules):
    """Return a steerer as a campaign on this lattice would make it."""
    reach = reweighting_reach(dims)
    if name == "uniform":
        return Uniform(low, high, points=max(4, even_points(low, high, reach)))
    if name == "gaps":
        return Gaps(low, high)
    return GaussianProcess(low, high, fresh_cost=rules.fresh_cost, reach=reach, grid=151, paths=256)


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


def test_draws_go_on_in_a_circle_and_differ_between_seeds(small):
    tape, _ = small
    source = TapeSource(tape, 1)
    first, second = source.draw(5.08, 25, chain=0), source.draw(5.08, 35, chain=0)
    assert first.coordinate == 5.1
    drawn = np.concatenate([first.energy, second.energy])
    recorded = energies(SMALL.dims, "plaquette", tape.rows[1][:, 0].astype(np.float64))
    start = int(np.flatnonzero(recorded == drawn[0])[0])
    assert np.array_equal(drawn, np.roll(recorded, -start))
    starts = {TapeSource(tape, seed).draw(5.1, 1, chain=0).energy[0] for seed in range(20)}
    assert len(starts) > 5
    with pytest.raises(SpecError, match="holds 20 rows"):
        source.draw(5.3, 21, chain=1)
    with pytest.raises(SpecError, match="ascending"):
        TapeSpec(dims=(4, 4, 4, 4), betas=(5.1, 5.0), updates=(1, 1))


class Counting:
    """A source that keeps the books."""

    def __init__(self, inner):
        self.inner, self.drawn = inner, {}

    def draw(self, beta, updates, *, chain):
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
