"""Scale: the real planner feeds simulated lanes, failures cost work and no rows, and rates are those of the lanes."""

import numpy as np
import pytest

from experiments import Settings, scale
from experiments.protocol import quiet
from experiments.scale import CoreCampaign, as_simulated, run_case, spec_of
from experiments.scale_model import FAILURES_PER_HOUR, SITES_PER_S, Machine, RowSource, lattice_of
from experiments.scale_run import JOURNAL, SimulatedCampaign
from metalforge.campaign.state import Fold
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Record
from metalforge.core.errors import SpecError

LARGE = (48, 48, 48, 12)


@pytest.fixture(scope="module")
def quick():
    return scale.run(Settings(quick=True), quiet)


def test_the_quick_table_has_goals_and_a_real_campaign_beside_a_simulated_one(quick):
    assert [holds for _, _, holds in quick.checks] == [True] * 4
    names = {row.task for row in quick.rows}
    assert {name.rpartition(", ")[2] for name in names if "this machine" in name} == {"measured", "simulated"}
    assert all(len(line) == len(quick.table[0]) for line in quick.table)


def run_on(directory, lanes, seconds, **options):
    lattice = lattice_of(LARGE)
    campaign = SimulatedCampaign(spec_of(lattice, 3), lattice, Machine(lanes, **options), directory, seed=3)
    return campaign, campaign.run(seconds)


def test_failures_cost_work_and_no_rows(tmp_path):
    """What the journal has is what lanes made, chain by chain without a gap, however often they failed."""
    campaign, figures = run_on(tmp_path, 6, 4000.0, failures=2.0)
    assert figures.failures > 3
    assert figures.repeated_s > 0
    assert figures.busy < 0.95
    folding = Fold()
    read_journal(tmp_path / JOURNAL, Record, folding)
    state = folding.state
    assert state.trajectories == figures.rows
    assert all(chain.column("plaquette", measured=False).size == chain.step for chain in state.chains.values())
    folded, begun = campaign.resume()
    assert folded > 0
    assert begun > 0


def test_lanes_make_what_their_rate_allows(tmp_path):
    _, figures = run_on(tmp_path, 5, 3000.0, failures=0.0, speeds=((1.0, 1.0),))
    most = 5 * SITES_PER_S / np.prod(LARGE) / lattice_of(LARGE).thinning
    assert figures.busy > 0.95
    assert figures.rows / figures.seconds == pytest.approx(most, rel=0.1)
    assert figures.rows / figures.seconds < most
    assert all(seconds >= 0 for seconds in figures.begun_s)


def test_slow_lanes_get_less(tmp_path):
    campaign, _ = run_on(tmp_path, 10, 3000.0, failures=0.0)
    folding = Fold()
    read_journal(tmp_path / JOURNAL, Record, folding)
    made = dict.fromkeys(campaign.lanes, 0)
    for chain in folding.state.chains.values():
        for name, rows in chain.made_on.items():
            made[name] += rows
    fast, slow = [made[f"cuda:{i}"] for i in range(7)], [made[f"cuda:{i}"] for i in range(7, 10)]
    assert np.mean(slow) / np.mean(fast) == pytest.approx(0.6, abs=0.1)


def test_rows_have_the_model_of_their_lattice():
    lattice = lattice_of(LARGE)
    source = RowSource(lattice, 1)
    beta, chi = lattice.model.peak()
    for number in range(40):
        source.open(f"c{number}", beta, ("hot", "cold")[number % 2])
    rows = np.stack([source.take(f"c{number}", 2000)[:, 500:] for number in range(40)])
    loop = np.hypot(rows[:, 1], rows[:, 2])
    assert 512 * loop.var() == pytest.approx(chi, rel=0.15)
    energy = 6 * np.prod(LARGE) * (1 - rows[:, 0])
    assert energy.std(axis=1).mean() == pytest.approx(lattice.model.s, rel=0.05)
    assert lattice.beta_c == pytest.approx(6.335, abs=1e-3)


def test_a_core_is_simulated_at_the_rate_that_was_measured():
    found = as_simulated(CoreCampaign(1, 0.8, 160.0), 2, 30.0, 1)
    assert found.updates_per_s == pytest.approx(2 * 200.0, rel=0.1)
    assert found.busy > 0.9


def test_a_lattice_without_a_published_coupling_is_refused():
    with pytest.raises(SpecError, match="N_t"):
        lattice_of((28, 28, 28, 7))


def test_runs_are_kept_and_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "CASES", scale.QUICK_CASES)
    settings = Settings(file=str(tmp_path / "scale.jsonl"), only=" 1 card")
    first = scale.run(settings, quiet)
    monkeypatch.setattr(scale, "run_case", None)
    assert scale.run(settings, quiet) == first
    assert (tmp_path / "scale.jsonl").read_text().count('"case"') == 1


def test_published_failures_are_rare():
    assert pytest.approx(1.0, abs=0.1) == 1000 * FAILURES_PER_HOUR * 8
    assert run_case(scale.QUICK_CASES[0], 1).failures == 0
