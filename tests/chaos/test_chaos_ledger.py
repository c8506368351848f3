"""Long attacks add up in a file: what is in it is not run again, a part keeps to its time, and a table sums it."""

from . import ledger
from .table import PLAN, lines


def test_parts_add_up_and_run_nothing_twice(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "chaos.jsonl"
    monkeypatch.setenv("METALFORGE_CHAOS_FILE", str(path))
    ran = []

    def attack(seed):
        ran.append(seed)
        return {"blows": 2.0}, ["it fell"] if seed == 1 else []

    assert ledger.add_up("damages", range(3), attack) == ["damages 1: it fell"]
    with path.open("ab") as stream:
        stream.write(b'{"attack":"damages","se')  # a part that was killed
    assert ledger.add_up("damages", range(5), attack) == ["damages 1: it fell"]
    assert ran == [0, 1, 2, 3, 4]
    page = "\n".join(lines(ledger.read(path)))
    assert "| damages | 10,000 damages | 10 | 1 |" in page
    assert "- damages, seed 1: it fell" in page
    assert all(f"| {attack} | {planned} |" in page for attack, (planned, _) in PLAN.items())


def test_a_part_begins_nothing_that_might_end_too_late(tmp_path, monkeypatch):
    monkeypatch.setenv("METALFORGE_CHAOS_FILE", str(tmp_path / "chaos.jsonl"))
    monkeypatch.setattr(ledger, "PART_S", -1.0)
    assert ledger.add_up("kills", range(3), lambda seed: ({}, ["never run"])) == []
