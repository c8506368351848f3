"""What heads did in a run is accounted for, and what the baselines would have decided is read from the journal."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from metalforge import campaign
from metalforge.campaign.report.heads import MEASURED
from metalforge.campaign.running.campaign import JOURNAL
from metalforge.campaign.spec import Budget, WarmUpPolicy
from metalforge.campaign.state import PEAK_PRIOR, fold
from metalforge.campaign.steerers import GaussianProcess
from metalforge.campaign.store import read_journal
from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.records import Assigned, Decided, Record, head_of
from metalforge.campaign.view import view_of
from metalforge.campaign.without_heads import VisitsAgain, rule_ends_warmup
from metalforge.cli.main import app
from metalforge.core.errors import SpecError
from reference.campaigns import BEGAN, WARMUP, ending, opened, records_of, spec_of
from reference.small_campaigns import ROUNDS

SPEC = msgspec.structs.replace(spec_of(), warmup=WarmUpPolicy(longest=100, shortest=20))
COUNTS = {"asked": 9, "heads": 5, "late": 2, "deadline": 1, "untrusted": 1, "rows": 700, "rows_lost": 0}


def note(counts):
    return Decided(at=BEGAN, what="reader", by="worker", reason="counted", counts=counts)


def kept(records, directory):
    directory.mkdir()
    with Journal.open(directory / JOURNAL, Record, mode="create") as journal:
        for record in records:
            journal.append(record)
    return directory


@pytest.fixture(scope="module")
def acted(tmp_path_factory):
    """A finished campaign in which a head ended the warm-ups, after a look by the journal's own rows."""
    records = ending(records_of(SPEC, rows=120, warmup=WARMUP, relaxing=6.0, head=True))
    records[1:1] = [note(COUNTS), note(COUNTS)]
    return kept(records, tmp_path_factory.mktemp("acted") / "run")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A campaign without any head's word, as it really ran."""
    directory = tmp_path_factory.mktemp("ran") / "run"
    campaign.run(ROUNDS, directory)
    return directory


def metalforge(*arguments):
    return json.loads(CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False).stdout)


def test_a_head_acts_where_its_word_was_taken_and_the_effect_is_marked_modelled(acted):
    heads = metalforge("replay", acted, "--json")["heads"]
    assert set(heads) == {"thermalization", "cg_estimate"}
    assert all(set(account) == {"acts", "skill", "decisions", "effect"} for account in heads.values())
    account = heads["thermalization"]
    assert (account["acts"], account["skill"], account["decisions"]) == (True, 0.61, {"warmup-ends": 5})
    assert account["effect"]["source"] == "modelled"
    assert account["effect"]["decided"] == 5 * WARMUP
    assert account["effect"]["baseline"] >= 5 * SPEC.warmup.shortest
    assert heads["cg_estimate"] == {"acts": False, "skill": None, "decisions": {}, "effect": None}


def test_a_head_that_is_trusted_and_never_used_does_not_act(tmp_path):
    records = [r for r in records_of(SPEC, rows=60, head=True) if getattr(r, "what", "") != "warmup-ends"]
    heads = metalforge("replay", kept(records, tmp_path / "run"), "--json")["heads"]
    assert (heads["thermalization"]["acts"], heads["thermalization"]["skill"]) == (False, 0.61)
    assert "not asked yet" in view_of(fold(records), BEGAN).heads


def test_one_line_may_stand_for_many_decisions():
    head = Decided(at=BEGAN, what="head", by="cg_estimate", reason="skill", value=0.4, trusted=True)
    set_by = Decided(
        at=BEGAN, what="check-interval", by="head:cg_estimate", reason="", trusted=True, head="cg_estimate", times=120
    )
    (account,) = campaign.Results(fold([opened(SPEC), head, set_by])).result.heads.values()
    assert account.decisions == {"check-interval": 120}


@pytest.mark.usefixtures("undrawn")
def test_answers_are_counted_over_processes_and_the_report_says_which_were_late(acted):
    answers = metalforge("replay", acted, "--json")["answers"]
    assert answers == {**{name: 2 * count for name, count in COUNTS.items()}, "lost": 0, "ahead": 0, "ahead_ready": 0}
    said = metalforge("report", acted, "--json")
    assert said["answers"] == answers
    assert said["heads"]["thermalization"]["acts"]
    page = Path(said["report"]).read_text()
    assert "4 answers came late" in page
    assert "modelled" in page


def test_without_heads_lists_both_side_by_side_in_another_process(acted):
    command = [
        sys.executable,
        "-c",
        "from metalforge.cli import main; main()",
        "replay",
        str(acted),
        "--without",
        "heads",
        "--json",
    ]
    before = (acted / JOURNAL).read_bytes()
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert (acted / JOURNAL).read_bytes() == before
    assert found == metalforge("replay", acted, "--without", "heads", "--json")
    assert len(found["decisions"]) == 5
    assert found["different"] == sum(entry["modelled"] for entry in found["decisions"]) > 0
    chains = campaign.load(acted).state.chains
    for entry in found["decisions"]:
        assert (entry["what"], entry["head"], entry["trusted"]) == ("warmup-ends", "thermalization", True)
        assert (entry["decided"], entry["unit"]) == (WARMUP, "updates")
        assert entry["baseline"] == rule_ends_warmup(SPEC, chains[entry["chain"]])
    shown = CliRunner().invoke(app, ["replay", str(acted), "--without", "heads"]).stdout
    assert "other, modelled" in shown


def test_what_can_be_left_out_is_heads(acted):
    with pytest.raises(SpecError, match="heads"):
        metalforge("replay", acted, "--without", "chains")


def test_the_rule_on_the_journals_rows_ends_warm_ups_where_it_did(ran):
    state = campaign.load(ran).state
    ended = {d.chain: d.step for d in state.decisions if d.what == "warmup-ends"}
    assert {name: rule_ends_warmup(ROUNDS, state.chains[name]) for name in ended} == ended


def test_visits_planned_again_are_those_that_were_decided(ran, monkeypatch):
    told, tell = [], GaussianProcess.tell
    monkeypatch.setattr(GaussianProcess, "tell", lambda self, seen: (told.append(seen), tell(self, seen)))
    again = VisitsAgain(None, lambda state, visit: True)
    read_journal(ran / JOURNAL, Record, take=again)
    assert len(again.found) > 5
    assert len(told) < len(again.found), "what a visit gave is told once"
    assert all(other == msgspec.structs.replace(visit, at=0.0) for visit, other in again.found)


def test_a_visit_that_a_head_placed_stands_beside_the_one_it_took_the_place_of(ran, tmp_path):
    records = read_journal(ran / JOURNAL, Record).records
    last = max(i for i, record in enumerate(records) if isinstance(record, Assigned) and record.fresh)
    kept_beta = records[last].beta
    records[last] = msgspec.structs.replace(records[last], by="head:beta_priority", beta=5.0123)
    directory = kept(records, tmp_path / "run")
    found = metalforge("replay", directory, "--without", "heads", "--json")["decisions"]
    (entry,) = (entry for entry in found if entry["what"] == "visit")
    # Warm-ups that a head looked at without a say ended where the rule ends them.
    assert not any(other["differs"] or other["trusted"] for other in found if other is not entry)
    assert (entry["what"], entry["head"], entry["unit"]) == ("visit", "beta_priority", "beta")
    assert (entry["decided"], entry["baseline"], entry["modelled"]) == (5.0123, kept_beta, True)
    assert metalforge("replay", directory, "--json")["heads"]["beta_priority"]["decisions"] == {"visit": 1}


def test_visits_placed_by_a_heads_word_on_the_peak_are_planned_again_without_it(ran, tmp_path):
    """The user's word is put into a head's mouth: without it the first visits are those of a campaign without any."""
    plain = campaign.load(ran).state
    steering = msgspec.structs.replace(ROUNDS.steering, prior=(5.1, 0.01))
    short = msgspec.structs.replace(ROUNDS, steering=steering, budget=Budget(trajectories=500))
    campaign.run(short, tmp_path / "run")
    records = [
        msgspec.structs.replace(r, by="head:beta_priority", head="beta_priority", trusted=True, baseline=5.09)
        if isinstance(r, Decided) and r.what == PEAK_PRIOR
        else r
        for r in read_journal(tmp_path / "run" / JOURNAL, Record).records
    ]
    directory = kept(records, tmp_path / "headed")
    found = metalforge("replay", directory, "--without", "heads", "--json")
    visits = [entry for entry in found["decisions"] if entry["what"] == "visit"]
    assert [entry["baseline"] for entry in visits[:2]] == [visit.beta for visit in plain.visits[:2]]
    assert all(entry["head"] == "beta_priority" and entry["modelled"] for entry in visits[:2])
    account = found["heads"]["beta_priority"]
    assert account["decisions"] == {PEAK_PRIOR: 1, "visit": len(visits)}
    assert (account["effect"]["decided"], account["effect"]["baseline"]) == (5.1, 5.09)
    assert account["effect"]["unit"] == "beta"
    assert account["effect"]["measured"] == MEASURED["beta_priority"]


def test_journals_of_before_name_the_head_too():
    early = Decided(what="warmup-ends", by="rule:MSER", reason="", value=0.4, trusted=False)
    assert head_of(early) == "thermalization"
    assert head_of(msgspec.structs.replace(early, value=None)) == ""


def test_effects_that_were_measured_are_cited_by_a_row_that_is_there():
    docs = Path(__file__).parents[3]
    for cited in MEASURED.values():
        place, _, row = cited.rpartition(": ")
        table, _, heading = place.partition(", ")
        text = (docs / table).read_text().partition(f"## {heading}")[2] if heading else (docs / table).read_text()
        assert any(row in line for line in text.splitlines() if line.startswith("|"))
