import base64
import csv
import io
import re

import pytest

from metalforge.campaign.report.downloads import curves_of, write_rows
from metalforge.campaign.report.page import write_report
from metalforge.campaign.report.result import Results
from metalforge.campaign.state import fold
from reference.campaigns import WARMUP, ending, records_of, spec_of


@pytest.mark.usefixtures("undrawn")
def test_rows_and_curves_read_back_as_the_journal_has_them(tmp_path):
    state = fold(ending(records_of(spec_of(), betas=(5.68, 5.7), rows=60)))
    page = write_report(Results(state), tmp_path).read_text()

    with open(tmp_path / "rows.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == state.trajectories == 2 * (60 + WARMUP)
    for chain in state.chains.values():
        own = [row for row in rows if row["chain"] == chain.id]
        assert {(row["system"], float(row["coordinate"]), row["start"]) for row in own} == {
            (f"{chain.system[0]}^3x4", chain.coordinate, chain.start)
        }
        assert [int(row["update"]) for row in own] == list(range(chain.rows))
        assert [row["phase"] for row in own] == chain.phases
        for name, values in chain.columns.items():
            assert [float(row[name]) for row in own] == values

    text = (tmp_path / "curves.csv").read_text()
    curves = curves_of(state)
    table = list(csv.DictReader(io.StringIO(text)))
    points = [row for row in table if row["what"] == "point"]
    assert {row["chain"]: float(row["beta"]) for row in points} == {c.id: c.coordinate for c in state.chains.values()}
    table = [row for row in table if row["what"] == "curve"]
    for column, name in (("beta", "coordinate"), *((n, n) for n in ("segment", "order", "chi", "chi_error", "b4"))):
        assert [float(row[column]) for row in table] == [x for found in curves.values() for x in getattr(found, name)]
    assert [row["system"] for row in table] == [f"{d[0]}^3x4" for d, found in curves.items() for _ in found.coordinate]
    assert len(table) > 100

    inside = re.search(r'href="data:text/csv;base64,([^"]*)" download="curves.csv"', page).group(1)
    assert base64.b64decode(inside).decode() == text
    assert 'href="rows.csv"' in page


def test_columns_that_only_some_chains_have_are_empty_elsewhere():
    state = fold(records_of(spec_of(volumes=((8, 8, 8, 4), (6, 6, 6, 4))), betas=(5.68,), rows=30))
    state.chains["c0001"].columns["extra"] = [1.0] * state.chains["c0001"].rows
    stream = io.BytesIO()
    write_rows(state, stream)
    rows = csv.DictReader(io.StringIO(stream.getvalue().decode()))
    extra = {(row["chain"], row["system"], row["extra"]) for row in rows}
    assert extra == {("c0000", "8^3x4", ""), ("c0001", "6^3x4", "1.0")}
