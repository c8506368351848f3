"""`campaign.jsonl` is the journal of a campaign that established its number: it must be read with the same content."""

from pathlib import Path

import pytest

from metalforge.campaign.report.result import Results
from metalforge.campaign.state import fold
from reference.journaling import contents_of

FILE = Path(__file__).with_name("campaign.jsonl")
DIGEST = "259bcc3d3e4dd5dca8614219257dda9bb77a245d5132f5b7939c715c6ada5115"


@pytest.fixture(scope="module")
def contents():
    return contents_of(FILE)


def test_rows_decisions_and_looks_are_as_they_were_written(contents):
    state = fold(contents.records)
    assert contents.torn is None
    assert (state.digest(), state.trajectories, state.finished.stopped_by) == (DIGEST, 4200, "trajectories")
    assert all(look.evidence for look in state.estimates)


def test_the_verdict_and_its_number_can_be_derived_again(contents):
    state = fold(contents.records)
    found = Results(state)
    assert found.established
    assert (found.quoted.name, found.reason) == ("beta_c", None)
    assert (found.value, found.error) == (
        pytest.approx(5.0847623, abs=1e-6),
        pytest.approx(0.0068195, rel=1e-3),
    )
    assert all(item.holds for item in found.evidence)
