"""Quoted errors on campaigns that nobody tuned to: exact models, stopped by a target and by a budget."""

import msgspec
import pytest

from experiments import Settings, coverage
from experiments.coverage import CASES
from experiments.protocol import quiet

EXACT = [case for case in CASES if case.model]


@pytest.mark.long
def test_errors_of_campaigns_on_exact_models_hold(tmp_path, monkeypatch):
    """A hundred of each case, twenty of chains side by side: shares within one and two errors, and none far off."""
    fewer = [msgspec.structs.replace(case, campaigns=20 if case.chains else 100) for case in EXACT]
    monkeypatch.setattr(coverage, "CASES", tuple(fewer))
    # Other seeds than those of the published table.
    found = coverage.run(Settings(seed=7, file=str(tmp_path / "coverage.jsonl")), quiet)
    failed = [(asked, came) for asked, came, passed in found.checks if not passed]
    assert failed == []
    assert len(found.table) == len(EXACT)
