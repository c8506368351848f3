"""Campaigns with sea quarks: the condensate in every measured row, through resumes."""

import msgspec
import numpy as np
import pytest

from metalforge.campaign.report.page import write_report
from metalforge.campaign.report.result import Results
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.spec import Budget, CampaignSpec, Running, Screening, Steering, WarmUpPolicy, preset
from metalforge.campaign.state import fold
from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import BlockDone, Decided, Rows
from metalforge.core.errors import InternalError
from metalforge.lattice.campaign import Lattice
from metalforge.lattice.campaign.published import known_of
from metalforge.lattice.campaign.quarks import quarks_of
from metalforge.lattice.campaign.report import quarks_section
from metalforge.lattice.chain import Chain, UpdateInfo
from metalforge.lattice.warmup import WarmUp, warm_up_step

SEA = CampaignSpec(
    name="quarks",
    seed=5,
    theory=Lattice(
        volumes=((4, 4, 4, 2),),
        beta_min=4.0,
        beta_max=5.0,
        algorithm="hmc",
        tau=0.5,
        n_steps=4,
        flavors=4,
        mass=0.5,
    ),
    budget=Budget(trajectories=150),
    warmup=WarmUpPolicy(longest=12, shortest=10, cheap=2),
    steering=Steering(visit=22, initial=3),
    screening=Screening(device="software"),
    running=Running(block=10, deterministic=True, producers=2, checkpoint_s=0.0),
)
CONDENSATE = ("condensate", "condensate_pairs", "condensate_connected")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """The records of a short campaign with sea quarks."""
    directory = tmp_path_factory.mktemp("quarks") / "run"
    with Campaign.open(SEA, directory) as campaign:
        campaign.run()
    return read_journal(directory / JOURNAL)


def test_a_chain_that_stands_still_is_given_up(monkeypatch, tmp_path):
    """A chain with sea quarks has no witness that would find it."""
    update = Chain.update

    def stuck(chain, **options):
        if chain.step < 20:
            return update(chain, **options)
        chain.step += 1
        return UpdateInfo(step=chain.step, accepted=True, delta_h=0.1, cg_iterations=1)

    monkeypatch.setattr(Chain, "update", stuck)
    with Campaign.open(msgspec.structs.replace(SEA, budget=Budget(trajectories=60)), tmp_path / "run") as campaign:
        state = campaign.run()
    chains = [chain for chain in state.chains.values() if chain.measured]
    assert chains
    assert all(chain.abandoned and chain.rows <= 20 for chain in chains)
    assert {decision.by for decision in state.decisions if decision.what == "fault"} == {"rule:repeated"}


def written(records, directory):
    directory.mkdir()
    with Journal.open(directory / JOURNAL, mode="create") as journal:
        for record in records:
            journal.append(record)
    return directory


def midway(records):
    """The records until some measured rows of a chain, and no further."""
    measured = [i for i, record in enumerate(records) if isinstance(record, Rows) and record.phase == "measure"]
    return records[: measured[len(measured) // 3] + 1]


def plain(records):
    """The records without the condensate."""
    return [
        msgspec.structs.replace(r, columns={k: v for k, v in r.columns.items() if k not in CONDENSATE})
        if isinstance(r, Rows)
        else r
        for r in records
    ]


def test_rows_of_the_measurement_have_the_condensate_of_their_configuration(records):
    """A chain alone measures the same, bit for bit; its solves are not counted as the trajectory's."""
    state = fold(records)
    log = state.chains["c0000"]
    chain = Chain(
        SEA.theory.chain(log.system, log.coordinate, seed=SEA.seed, stream=log.stream, start="hot"), threads=1
    )
    warmup = WarmUp(total=log.cheap + SEA.warmup.longest, quenched=log.cheap)
    for _ in range(log.warmup):
        warmup, _ = warm_up_step(chain, warmup)
    for i in range(log.warmup, log.rows):
        info = chain.update()
        solves = chain.sea.inverter.solves
        seen = chain.measure()
        assert [log.columns[name][i] for name in CONDENSATE] == [getattr(seen, name) for name in CONDENSATE]
        assert log.columns["cg_iterations"][i] == info.cg_iterations / solves
        assert chain.sea.inverter.solves == solves
    assert log.measured > 10
    assert all(log.columns[name][: log.warmup] == [0.0] * log.warmup for name in CONDENSATE)


def test_quenched_campaigns_have_no_such_columns():
    assert set(CONDENSATE) <= set(SEA.theory.columns())
    assert not set(CONDENSATE) & set(preset("demo").theory.columns())


def test_a_resumed_campaign_has_the_same_condensates(records, tmp_path):
    with Campaign.resume(written(midway(records), tmp_path / "run")) as campaign:
        state = campaign.run()
    assert state.digest() == fold(records).digest()
    assert all(set(CONDENSATE) <= set(chain.columns) for chain in state.chains.values())


def test_chains_that_are_too_short_say_nothing_of_their_quarks(records):
    first = next(i for i, record in enumerate(records) if isinstance(record, Rows) and record.phase == "measure")
    state = fold(records[: first + 1])
    result = Results(state)
    assert quarks_of(state) == {}
    assert "No chain" in quarks_section(result, {})
    assert result.theory.order.text == "Re L"


def test_a_column_that_begins_in_the_middle_of_a_chain_is_refused(records):
    begun = plain(midway(records))
    rest = records[len(begun) :]
    late = next(i for i, r in enumerate(rest) if isinstance(r, Rows) and r.first > 0)
    with pytest.raises(InternalError, match="condensate"):
        fold([*begun, *(r for r in rest[: late + 1] if isinstance(r, Rows | Decided | BlockDone))])


def test_the_report_has_every_chain_with_its_susceptibility(records, tmp_path):
    state = fold(records)
    points = quarks_of(state)
    assert set(points) == {c.id for c in state.chains.values() if c.measured >= 20}
    for name, point in points.items():
        chain = state.chains[name]
        c, pairs = chain.column("condensate"), chain.column("condensate_pairs")
        assert point.condensate.mean == pytest.approx(c.mean())
        # One field of four tastes: (Nf/4)^2 = 1, V = 128 sites.
        assert point.disconnected.mean == pytest.approx(128 * (pairs.mean() - c.mean() ** 2), rel=1e-9)
        assert point.re_loop.mean == pytest.approx(chain.column("polyakov_re").mean())
    page = write_report(Results(state), tmp_path).read_text()
    assert "chi_disc" in page
    assert (tmp_path / "figures" / "quarks.png").exists()


def test_what_is_steered_and_located_is_the_real_part_of_the_loop(records):
    state = fold(records)
    for point, chain in zip(
        state.points((4, 4, 4, 2)), sorted(state.chains.values(), key=lambda c: c.coordinate), strict=True
    ):
        assert np.array_equal(point.order, chain.column("polyakov_re"))


def test_what_is_known_is_said_for_quarks_only():
    assert known_of(preset("demo").theory) == ()
    said = " ".join(known_of(preset("dynamical-nf4").theory))
    assert "5.04" in said
    assert "hep-lat/0209146" in said
    other = " ".join(known_of(SEA.theory))
    assert "5.04" not in other
    assert "N_t = 2" in other
