"""What heads did in a run is accounted for, and what the baselines would have decided is read from the journal."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from metalforge import campaign
from metalforge.campaign.report.decisions import MEASURED, NO_DECISION, decision_counts, why_not
from metalforge.campaign.running.advice import PeakPriors
from metalforge.campaign.running.campaign import JOURNAL
from metalforge.campaign.spec import WarmUpPolicy
from metalforge.campaign.state import PEAK_PRIOR, fold
from metalforge.campaign.store.journal import Journal
from metalforge.campaign.store.records import Decided
from metalforge.campaign.view import view_of
from metalforge.cli.main import app
from metalforge.core.errors import SpecError
from metalforge.dashboard.following import Followed
from metalforge.dashboard.payloads import decisions_sent
from reference.campaigns import BEGAN, ending, records_of, spec_of
from reference.small_campaigns import ROUNDS

SPEC = msgspec.structs.replace(spec_of(), warmup=WarmUpPolicy(longest=100, shortest=20))


def kept(records, directory):
    directory.mkdir()
    with Journal.open(directory / JOURNAL, mode="create") as journal:
        for record in records:
            journal.append(record)
    return directory


@pytest.fixture(scope="module")
def acted(tmp_path_factory):
    """A finished campaign in which a head chose the lengths of cheap warm-ups."""
    records = ending(records_of(SPEC, rows=120, relaxing=6.0, head=True))
    return kept(records, tmp_path_factory.mktemp("acted") / "run")


def metalforge(*arguments):
    return json.loads(CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False).stdout)


def test_a_head_acts_where_decisions_differ_and_the_effect_is_marked_modelled(acted):
    heads = metalforge("replay", acted, "--json")["heads"]
    assert set(heads) == {"quenched_length", "cg_estimate"}
    assert all(set(account) == {"acts", "skill", "decisions", "effect"} for account in heads.values())
    account = heads["quenched_length"]
    assert (account["acts"], account["skill"], account["decisions"]) == (True, 0.61, {"cheap-length": 5})
    assert account["effect"]["source"] == "modelled"
    assert (account["effect"]["decided"], account["effect"]["baseline"]) == (60, 100)
    assert heads["cg_estimate"] == {"acts": False, "skill": None, "decisions": {}, "effect": None}


def test_a_head_that_is_trusted_and_never_used_does_not_act(tmp_path):
    records = [r for r in records_of(SPEC, rows=60, head=True) if getattr(r, "what", "") != "cheap-length"]
    heads = metalforge("replay", kept(records, tmp_path / "run"), "--json")["heads"]
    assert (heads["quenched_length"]["acts"], heads["quenched_length"]["skill"]) == (False, 0.61)
    assert view_of(fold(records), BEGAN).heads.startswith("quenched_length is trusted, no decision yet; ")
    assert why_not(fold(records).heads["quenched_length"]) == NO_DECISION


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
    assert found["different"] == sum(entry["differs"] for entry in found["decisions"]) > 0
    for entry in found["decisions"]:
        assert (entry["what"], entry["head"], entry["trusted"]) == ("cheap-length", "quenched_length", True)
        assert (entry["decided"], entry["unit"]) == (12, "updates")
        assert entry["baseline"] == 20
    shown = CliRunner().invoke(app, ["replay", str(acted), "--without", "heads"]).stdout
    assert "other, modelled" in shown


def test_what_can_be_left_out_is_heads(acted):
    with pytest.raises(SpecError, match="heads"):
        metalforge("replay", acted, "--without", "chains")


def said_by_head(shift):
    """Where a peak is expected: the curve's word first, and after three chains the head's, which is off by `shift`."""

    def news(self, state, dims):
        known, mean, width = state.expected(dims), 5.1, 0.02
        if known is None:
            return Decided(what=PEAK_PRIOR, system=dims, by="rule:transition", reason="", value=mean, width=width)
        if known.head or sum(c.complete > 0 for c in state.chains.values()) < 3:
            return None
        return Decided(
            what=PEAK_PRIOR, system=dims, by="head:beta_priority", head="beta_priority", trusted=True, reason="",
            value=mean + shift, width=width, baseline=mean,
        )  # fmt: skip

    return news


def headed(shift, directory, monkeypatch):
    """Run a campaign whose visits follow a head's word on the peak; the visits that were made after it."""
    monkeypatch.setattr(PeakPriors, "news", said_by_head(shift))
    steering = msgspec.structs.replace(ROUNDS.steering, prior="auto")
    campaign.run(msgspec.structs.replace(ROUNDS, steering=steering), directory)
    state = campaign.load(directory).state
    said = next(d for d in state.decisions if d.what == PEAK_PRIOR and d.head)
    return state, [visit for visit in state.visits if visit.at >= said.at]


@pytest.mark.parametrize("shift", [2.5e-7, 2.5e-5])
def test_a_head_that_hardly_moved_the_prior_does_not_act(shift, tmp_path, monkeypatch):
    """Some visits would be elsewhere without it, as they would be with any other curves that the steerer draws."""
    state, after = headed(shift, tmp_path / "run", monkeypatch)
    assert after
    assert all((visit.head, visit.by_head) == ("beta_priority", False) for visit in after)
    for accounts in (
        metalforge("replay", tmp_path / "run", "--json")["heads"],
        metalforge("replay", tmp_path / "run", "--without", "heads", "--json")["heads"],
    ):
        account = accounts["beta_priority"]
        assert (account["acts"], account["decisions"], account["effect"]) == (False, {}, None)
    assert not [by_heads for *_, by_heads in decision_counts(state) if by_heads]


def test_visits_that_a_heads_word_on_the_peak_moved_are_counted_the_same_everywhere(tmp_path, monkeypatch):
    state, after = headed(0.1, tmp_path / "run", monkeypatch)
    moved = [visit for visit in after if visit.by_head]
    assert moved
    assert all(visit.baseline != visit.coordinate for visit in moved)
    found = metalforge("replay", tmp_path / "run", "--without", "heads", "--json")
    visits = [entry for entry in found["decisions"] if entry["what"] == "visit"]
    assert [(e["decided"], e["baseline"], e["differs"]) for e in visits] == [
        (visit.coordinate, visit.baseline, visit.by_head) for visit in after
    ]
    account = found["heads"]["beta_priority"]
    assert account == metalforge("replay", tmp_path / "run", "--json")["heads"]["beta_priority"]
    assert (account["acts"], account["decisions"]) == (True, {"visit": len(moved)})
    assert found["different"] == sum(by_heads for *_, by_heads in decision_counts(state)) == len(moved)
    effect = account["effect"]
    assert (effect["decided"], effect["baseline"], effect["unit"]) == (pytest.approx(5.2), 5.1, "beta")
    assert effect["measured"] == MEASURED["beta_priority"]
    followed = Followed(tmp_path / "run")
    followed.advance()
    sent = [line for line in decisions_sent(followed) if (line["what"], line["head"]) == ("visit", "beta_priority")]
    assert [line["coordinate"] for line in sent] == [visit.coordinate for visit in moved]
    assert "beta_priority acts" in view_of(state, state.last_at).heads


def test_the_baseline_of_a_visit_is_where_a_campaign_without_the_head_measures(tmp_path, monkeypatch):
    state, after = headed(0.1, tmp_path / "headed", monkeypatch)
    without, _ = headed(0.0, tmp_path / "without", monkeypatch)
    first = after[0]
    assert [v.coordinate for v in state.visits[: first.visit]] == [v.coordinate for v in without.visits[: first.visit]]
    assert first.baseline == without.visits[first.visit].coordinate


def test_effects_that_were_measured_are_cited_by_a_row_that_is_there():
    docs = Path(__file__).parents[3]
    for cited in MEASURED.values():
        place, _, row = cited.rpartition(": ")
        table, _, heading = place.partition(", ")
        text = (docs / table).read_text().partition(f"## {heading}")[2] if heading else (docs / table).read_text()
        assert any(row in line for line in text.splitlines() if line.startswith("|"))
