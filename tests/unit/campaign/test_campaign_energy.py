"""What a campaign's emulated board is charged with, and that everything emulated says so."""

import msgspec
import numpy as np
import pytest

from metalforge.campaign.report.result import Results
from metalforge.campaign.report.sections_of_run import (
    device_times,
    efficiency_section,
    energy_lines,
    energy_section,
    host_of,
    per_joule,
    provenance_section,
)
from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.spec import Screening
from metalforge.campaign.state import fold
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import EMULATED_NPU, Energy, Migrated, Screened
from metalforge.campaign.view import view_of
from metalforge.conductor.shipped import shipped_weights
from metalforge.core.quantities import Measured, Modelled
from metalforge.substrates.profiles import profile
from reference.campaigns import ending, records_of, spec_of
from reference.small_campaigns import ROUNDS, run_until

PUBLISHED = "akd1000-published"
IDLE_W = profile(PUBLISHED).call.idle_power_w.value
ON_BOARD = msgspec.structs.replace(ROUNDS, name="board", screening=Screening(chi=0.3, device="npu"))


def joules(value):
    return Modelled(value=value, unit="J", profile=PUBLISHED)


def held(**changes):
    entry = Energy(
        at=1_790_000_020.0,
        substrate=EMULATED_NPU,
        source="modelled",
        energy=joules(0.08),
        idle=joules(65.8),
        busy=Modelled(value=4.8, unit="s", profile=PUBLISHED),
        held_s=73.0,
    )
    return msgspec.structs.replace(entry, **changes)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """The journal of a campaign that was interrupted and resumed, with its screen on the emulated board."""
    directory = tmp_path_factory.mktemp("energy") / "run"
    with Campaign.open(ON_BOARD, directory) as first:
        run_until(first, 301)
    with Campaign.resume(directory) as second:
        second.run()
    return list(read_journal(directory / JOURNAL))


@pytest.fixture(scope="module")
def state(records):
    return fold(records)


def test_idle_power_is_charged_for_the_time_the_board_was_held_beside_the_energy_above_it(state):
    entry = state.energy[EMULATED_NPU, "modelled"]
    assert state.interrupted
    assert state.finished is not None
    assert 0 < entry.held_s <= state.seconds + 1
    # Each process holds the board at least as long as the board works.
    assert IDLE_W * entry.held_s <= entry.idle.value * (1 + 1e-12)
    assert entry.idle.value <= IDLE_W * (entry.held_s + entry.busy.value)
    assert entry.energy.value == pytest.approx(entry.busy.value * (profile(PUBLISHED).call.power_w.value - IDLE_W))
    assert {entry.energy.profile, entry.idle.profile, entry.busy.profile} == {PUBLISHED}


def test_a_resumed_campaign_adds_to_what_was_spent_before(records):
    first, second = (r for r in records if isinstance(r, Energy) and r.substrate == EMULATED_NPU)
    for name in ("energy", "idle", "busy"):
        assert getattr(second, name).value > getattr(first, name).value
    assert second.held_s > first.held_s
    hosts = [r.emulation_s for r in records if isinstance(r, Energy) and r.source == "emulation"]
    assert hosts == sorted(hosts)
    assert len(hosts) == 2


def test_the_emulated_board_says_so_in_every_list(state):
    assert [s.name for s in state.opened.silicon] == ["cpu:0", "cpu:1", EMULATED_NPU]
    assert "emulated" in state.opened.silicon[-1].model
    shown = Results(state)
    assert EMULATED_NPU in shown.summary["substrates"]
    assert any("emulated" in name for name in view_of(state, state.last_at).substrates)
    assert {s.substrate for s in state.topology.stages if s.name == "screen"} == {EMULATED_NPU}
    for text in (energy_section(shown), efficiency_section(shown, {}), provenance_section(shown)):
        assert "npu-emulated" in text


def test_a_screen_in_software_is_no_npu_and_says_the_same(tmp_path, records):
    """Readings of a campaign on the device are those of software, to what its integers round."""
    with Campaign.open(ROUNDS, tmp_path / "run") as campaign:
        state = campaign.run()
    here = read_journal(tmp_path / "run" / JOURNAL)
    said, wanted = ({(r.chain, r.step): r.heads for r in some if isinstance(r, Screened)} for some in (records, here))
    for head in shipped_weights().heads.names[:9]:  # those that were trained
        both = [key for key in said.keys() & wanted.keys() if head in said[key] and head in wanted[key]]
        if head in ("rejection", "cg_estimate"):  # which do not apply to these chains
            assert both == []
            continue
        assert len(both) > 20
        device, software = (np.array([one[key][head] for key in both]) for one in (said, wanted))
        assert np.sqrt(np.mean((device - software) ** 2)) <= 0.05 * software.std(), head
    assert [s.name for s in state.opened.silicon] == ["cpu:0", "cpu:1"]
    assert {s.substrate for s in state.topology.stages if s.name == "screen"} == {"host"}
    assert not any("npu" in substrate for substrate, _ in state.energy)


def test_the_report_has_two_figures_of_the_board_and_none_is_their_sum():
    result = Results(fold([*ending(records_of(spec_of(), rows=60))[:-1], held()]))
    entry = next(e for e in result.energy if e.held_s is not None)
    above, idle = energy_lines(entry)
    assert (above[2], above[3]) == ("above idle", "0.08 J")
    assert (idle[2], idle[3]) == ("idle", "65.8 J")
    assert all(PUBLISHED in line[4] for line in (above, idle))
    assert "4.80 s of device time" in above[4]
    assert "73.0 s of wall time" in idle[4]


def test_device_time_and_the_time_of_its_emulation_stand_apart():
    result = Results(fold([*ending(records_of(spec_of(), rows=60))[:-1], held()]))
    (said,) = device_times(result)
    for word in ("4.80 s of the 73.0 s", "6.6%", f"modelled: {PUBLISHED}", "1.25 s of this host", "measured"):
        assert word in said
    assert host_of(EMULATED_NPU) == "host, as npu-emulated"
    assert host_of("cpu:0") == "cpu:0"


def test_an_unknown_idle_power_is_said_and_not_zero():
    result = Results(fold([*records_of(spec_of(), rows=60), held(idle=None, reason="states no idle power")]))
    work, idle = energy_lines(result.energy[0])
    assert work[2] == "while it worked"
    assert idle[3] == "unknown"
    assert "no idle power" in idle[4]


def test_samples_per_joule_count_the_idle_power_too():
    result = Results(fold([*records_of(spec_of(), rows=60), held(energy=joules(10.0), idle=joules(30.0))]))
    assert f"{result.effective_per_second * result.seconds / 40.0:.3g} per joule" in per_joule(result)


def test_samples_per_measured_joule_say_what_is_not_in_them():
    records = records_of(spec_of(), rows=60)
    card = Energy(
        at=records[-1].at, substrate="cuda:0", source="measured", energy=Measured(value=50.0, unit="J", how="NVML")
    )
    result = Results(fold([*records, card, held(energy=joules(10.0), idle=joules(30.0))]))
    said = per_joule(result)
    assert f"{result.effective_per_second * result.seconds / 50.0:.3g} per joule" in said
    assert "measured on cuda:0; npu-emulated (modelled)" in said


def test_migrations_are_counted_beside_the_chains_that_made_them():
    records = records_of(spec_of(), rows=60)
    moves = [
        Migrated(at=records[-1].at, chain=chain, step=50, source="cpu:0", target="cpu:1")
        for chain in ("c0000", "c0001", "c0000")
    ]
    state = fold([*records, *moves])
    assert "3 migrations of 2 chains" in provenance_section(Results(state))
    one = fold([*records, moves[0]])
    assert "1 migration of 1 chain<" in provenance_section(Results(one))
