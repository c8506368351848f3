import msgspec
import numpy as np
import pytest

from metalforge.campaign.report.decisions import decision_counts, warmup_checks
from metalforge.campaign.report.result import Results
from metalforge.campaign.state import fold
from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import EMULATED_NPU
from metalforge.lattice.campaign.report import LatticeReport
from metalforge.statistics import gamma_method, susceptibility
from reference.campaigns import BEGAN, WARMUP, ending, interrupted, opened, records_of, spec_of
from reference.landau_chain import VOLUME, exact_chi


def exact_peak():
    betas = np.linspace(5.68, 5.70, 81)
    chi = exact_chi(betas)
    assert 0 < chi.argmax() < 80
    return betas[chi.argmax()], chi.max()


@pytest.fixture(scope="module")
def records():
    return ending(records_of(spec_of()))


@pytest.fixture(scope="module")
def state(records):
    return fold(records)


@pytest.fixture(scope="module")
def result(state):
    return Results(state)


def test_beta_c_is_that_of_the_model(result):
    found = result.systems[0].transition
    beta_c, height = exact_peak()
    assert found.error < 0.01
    assert abs(found.result - beta_c) < 4 * found.error
    assert abs(found.height - height) < 4 * found.height_error
    assert found.n_bootstrap == 200


def test_a_replay_gives_the_same_bytes(records, result, tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal.open(path, mode="create") as journal:
        for record in records:
            journal.append(record)
    again = Results(fold(read_journal(path)))
    said = [msgspec.json.encode([derived.summary, derived.chains]) for derived in (again, result)]
    assert said[0] == said[1]


def test_the_time_of_day_is_no_part_of_the_result(records, result):
    later = [msgspec.structs.replace(record, at=record.at + 1e6) for record in records]
    again = Results(fold(later))
    assert (again.summary, again.chains) == (result.summary, result.chains)


def test_every_chain_is_measured_after_its_warm_up(state, result):
    assert [chain.coordinate for chain in result.chains] == sorted(chain.coordinate for chain in result.chains)
    for chain in result.chains:
        log = state.chains[chain.id]
        plaquette = np.array(log.columns["plaquette"])[WARMUP:]
        loop = np.abs(np.array(log.columns["polyakov_re"]) + 1j * np.array(log.columns["polyakov_im"]))[WARMUP:]
        found = gamma_method(plaquette)
        assert (chain.values["plaquette"].mean, chain.values["plaquette"].error) == (found.mean, found.error)
        # The variance of one chain falls short by 2 tau_int / n, which is made up for.
        assert chain.chi.mean == pytest.approx(susceptibility(loop, 512).mean, rel=0.15)
        assert chain.chi.mean > susceptibility(loop, 512).mean
        assert (chain.warmup, chain.measured, chain.cheap) == (WARMUP, 2000, 0)
        assert chain.effective == pytest.approx(2000 / (2 * chain.order.tau_int))
        assert "accepted" not in chain.values
    assert sum(chain.warmup + chain.measured for chain in result.chains) == state.trajectories


def test_the_json_form_has_these_fields_and_no_others(state, result, tmp_path):
    (tmp_path / "report.html").touch()
    found = msgspec.to_builtins(Results(state, tmp_path).summary)
    assert list(found) == [
        *("result", "evidence", "systems", "trajectories", "seconds", "stopped_by", "substrates"),
        *("energy", "heads", "faults", "report"),
    ]
    peak = result.systems[0].transition
    assert found["result"] == {
        "name": "beta_c",
        "label": "\u03b2c",
        "unit": "",
        "value": peak.result,
        "error": peak.error,
        "established": result.established,
        "reason": result.systems[0].reason or None,
    }
    assert [system["transition"]["result"] for system in found["systems"]] == [peak.result]
    assert found["trajectories"] == 5 * 2040
    assert found["stopped_by"] == "seconds"
    assert found["substrates"] == ("cpu:0", "cpu:1")
    assert found["report"].endswith("report.html")


def test_energy_stays_apart_by_source(result):
    assert [(e.substrate, e.source) for e in result.energy] == [
        ("cpu:0", "measured"),
        ("host", "emulation"),
        (EMULATED_NPU, "modelled"),
    ]
    emulation = result.energy[1]
    assert (emulation.energy, emulation.emulation_s) == (None, 1.25)


def test_drift_is_the_largest_of_all_checks(result):
    (drift,) = result.state.drift.values()
    assert (drift.checks, drift.largest["action"], drift.largest["polyakov"]) == (2, 3e-16, 7e-17)


def test_one_beta_locates_nothing_and_says_why():
    state = fold(ending(records_of(spec_of(), betas=(5.62,), rows=100)))
    result = Results(state)
    assert result.systems[0].transition is None
    summary = msgspec.to_builtins(result.summary)
    assert (summary["result"]["value"], summary["result"]["error"]) == (None, None)
    assert not summary["result"]["established"]
    assert "hint" in summary["result"]["reason"]
    assert "\n" not in summary["result"]["reason"]


def test_a_campaign_that_has_just_begun():
    state = fold([opened(spec_of())])
    result = Results(state)
    assert (state.trajectories, result.chains, state.stopped_by) == (0, (), None)
    assert "no chain was measured" in result.systems[0].reason


def test_an_unfinished_campaign_counts_time_until_its_last_record():
    records = records_of(spec_of(), rows=100)
    assert Results(fold(records)).seconds == records[-1].at - BEGAN
    stopped = interrupted(records)
    assert Results(fold(stopped)).seconds == stopped[-1].seconds
    assert fold(stopped).stopped_by is None


def test_heads_and_the_decisions_that_they_made():
    state = fold(records_of(spec_of(), rows=120, head=True))
    counts = {(what, by): (count, by_heads) for what, by, count, by_heads in decision_counts(state)}
    assert counts == {
        ("visit", "gaussian-process"): (5, 0),
        ("warmup-ends", "rule:MSER"): (5, 0),
        ("cheap-length", "head:quenched_length"): (5, 5),
    }
    assert [(name, said.trusted, said.value) for name, said in state.heads.items()] == [
        ("quenched_length", True, 0.61),
        ("cg_estimate", False, None),
    ]


def test_a_warm_up_that_was_long_enough_passes_the_check_afterwards(result):
    (check,) = warmup_checks(result.state)
    assert (check.chains, check.judged, check.over) == (5, 5, 5)
    assert check.mean_updates == WARMUP


def test_a_warm_up_that_was_too_short_does_not():
    short = records_of(spec_of(), warmup=2, relaxing=60.0)
    (check,) = warmup_checks(fold(short))
    assert (check.judged, check.over) == (5, 0)


def test_several_volumes_are_extrapolated_and_that_is_the_headline():
    volumes = (VOLUME, (12, 12, 12, 4), (10, 10, 10, 4))
    spec = spec_of(volumes=volumes)
    state = fold(records_of(spec))
    three = Results(state)
    assert [peak.system for peak in three.finite_size.peaks] == [volumes[0], volumes[2], volumes[1]]
    fit = three.finite_size.fit
    # The model's peak does not move with the volume.
    assert abs(fit.h) < 4 * fit.h_error
    assert abs(fit.result - exact_peak()[0]) < 4 * fit.error
    said = msgspec.to_builtins(three.summary)
    assert said["result"]["value"] == said["infinite"]["value"] == fit.result
    assert said["infinite"]["name"] == "infinite volume"
    assert said["infinite"]["systems"] == (volumes[2], volumes[1])
    assert (said["infinite"]["dof"], said["infinite"]["error"]) == (0, fit.error)
    assert "left out" in said["infinite"]["reason"]
    evidence = {item["name"]: item["holds"] for item in said["infinite"]["evidence"]}
    assert set(evidence) == {"beta_c of 10^3x4", "beta_c of 12^3x4", "chi2 of the line"}
    assert said["result"]["established"] == said["infinite"]["established"] == all(evidence.values())
    assert [entry["system"] for entry in said["systems"]] == list(volumes)
    assert "standard errors" in LatticeReport().comparison(three)


def test_volumes_that_cannot_be_extrapolated_leave_the_first_one_as_headline():
    volumes = (VOLUME, (12, 12, 12, 4))
    state = fold(records_of(spec_of(volumes=volumes)))
    said = msgspec.to_builtins(Results(state).summary)
    assert said["infinite"]["value"] is None
    assert "no extrapolation" in said["infinite"]["reason"]
    assert said["result"] == said["systems"][0]["result"]


def test_one_lattice_is_told_apart_from_what_is_published_for_infinite_volume(state, result):
    assert "infinite" not in msgspec.to_builtins(result.summary)
    said = LatticeReport().comparison(result)
    assert "5.69254(24)" in said
    assert "8^3x4 alone is another number" in said
    assert "5.6916(15)" in said
    sea = fold(records_of(spec_of(algorithm="hmc", flavors=4, trajectories=9999), rows=60))
    assert LatticeReport().comparison(Results(sea)) == ""


def test_hmc_has_acceptance_and_creutz_equality():
    result = Results(fold(records_of(spec_of(algorithm="hmc", flavors=4, trajectories=9999))))
    for chain in result.chains:
        assert chain.values["accepted"].mean == pytest.approx(0.9, abs=0.06)
        assert abs(chain.values["delta_h"].mean - 1) < 5 * chain.values["delta_h"].error
        assert chain.values["cg_iterations"].mean == pytest.approx(200, abs=2)
