"""One advisor reads the chains of a campaign: a resumed one reads the same, and its failures end no campaign."""

import msgspec

from metalforge.campaign.running.campaign import JOURNAL, Campaign
from metalforge.campaign.spec import Budget, Running, Screening, Steering, WarmUpPolicy
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Screened
from metalforge.conductor.advisor import ConductorAdvisor, _ChainReader
from metalforge.conductor.program import ConductorProgram
from metalforge.core.advice import ChainPlace, Reading
from metalforge.core.rows import Segment
from reference.small_campaigns import ROUNDS, WITH_QUARKS, run_until

SEA = msgspec.structs.replace(
    ROUNDS,
    name="reader",
    theory=WITH_QUARKS,
    budget=Budget(trajectories=60),
    warmup=WarmUpPolicy(longest=12, shortest=10, cheap=2),
    steering=Steering(visit=10, initial=2),
    screening=Screening(device="software"),
    running=Running(block=5, deterministic=True, producers=1, checkpoint_s=0.0),
)
"""Deterministic, two chains with sea quarks whose warm-ups tune the steps."""
MOVES = msgspec.structs.replace(ROUNDS, name="moves", budget=Budget(trajectories=1400))
"""Deterministic: chains change producers a few times."""


def _run(spec, directory):
    with Campaign.open(spec, directory) as campaign:
        return campaign.run()


def _said(directory):
    """Return the readings of a campaign by chain and update; those of an update are always the same."""
    said = {}
    for record in read_journal(directory / JOURNAL):
        if isinstance(record, Screened) and record.heads:
            assert said.setdefault((record.chain, record.step), record.heads) == record.heads
    return said


def test_what_was_read_of_a_chain_is_not_read_again_when_it_changes_producers(monkeypatch, tmp_path):
    read, due = [], _ChainReader.due

    def counted(self, row):
        found = due(self, row)
        read.extend(len(segment.columns["plaquette"]) for segment in found)
        return found

    monkeypatch.setattr(_ChainReader, "due", counted)
    spec = msgspec.structs.replace(MOVES, screening=msgspec.structs.replace(MOVES.screening, device="npu"))
    once = _run(spec, tmp_path / "once")
    assert max(len(log.made_on) for log in once.chains.values()) > 1, "the test needs chains that change producers"
    assert sum(read) == once.trajectories
    with Campaign.open(spec, tmp_path / "parts") as campaign:
        run_until(campaign, 900)
    with Campaign.resume(tmp_path / "parts") as campaign:  # another advisor, which is told all of it
        assert campaign.run().digest() == once.digest()
    whole, parts = _said(tmp_path / "once"), _said(tmp_path / "parts")
    assert all(parts[key] == whole[key] for key in whole.keys() & parts.keys())


def test_a_chain_that_cannot_be_read_has_no_readings_and_the_campaign_goes_on(monkeypatch, tmp_path):
    plain = _run(SEA, tmp_path / "plain")
    count, through = iter(range(10**6)), ConductorProgram.through

    def broken(self, frames):
        if next(count) >= 3:
            raise RuntimeError("chip on fire")
        return through(self, frames)

    monkeypatch.setattr(ConductorProgram, "through", broken)
    state = _run(SEA, tmp_path / "run")
    assert state.finished is not None
    assert {log.id: log.digest for log in state.chains.values()} == {
        log.id: log.digest for log in plain.chains.values()
    }
    (note,) = (d.reason for d in state.decisions if d.what == "reader")
    assert "chip on fire" in note
    assert len(_said(tmp_path / "run")) < len(_said(tmp_path / "plain"))


def test_rows_that_are_missing_are_noticed_and_those_known_before_passed_over():
    theory = ROUNDS.theory
    place = ChainPlace(theory.volumes[0], 5.0, "hot")
    columns = dict.fromkeys(("plaquette", "plaquette_spatial", "polyakov_re", "polyakov_im"), (0.4,) * 64)

    def rows(first, end):
        return Segment("measure", first, {name: column[first:end] for name, column in columns.items()})

    with theory.advisor() as advisor, theory.advisor() as other:
        assert isinstance(advisor, ConductorAdvisor)
        advisor.observe("a", [rows(0, 20)], place)
        assert advisor.advise(Reading("a", 10)) is None or not advisor.advise(Reading("a", 10)).readings
        first = advisor.advise(Reading("a", 19)).readings
        advisor.observe("a", [rows(0, 20), rows(20, 64)], place)
        other.observe("a", [rows(0, 64)], place)
        last = advisor.advise(Reading("a", 63)).readings
        assert first != last == other.advise(Reading("a", 63)).readings
        advisor.observe("b", [rows(5, 20)], place)
        assert advisor.advise(Reading("b", 19)) is None
        assert "missing" in advisor.trouble
        assert advisor.advise(Reading("nobody", 0)) is None
