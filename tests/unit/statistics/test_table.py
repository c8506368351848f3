import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metalforge.core.errors import SpecError
from metalforge.statistics import read_csv, write_csv


def test_columns_come_back_as_they_were(tmp_path):
    beta = np.linspace(5.66, 5.72, 41)
    columns = {"beta": beta, "n": np.arange(41), "phase, with comma": ["hot" if b > 5.69 else "cold" for b in beta]}
    path = write_csv(tmp_path / "curve.csv", columns, comment="lattice 8^3x4\ncut 200")
    assert path.read_text().splitlines()[:3] == ["# lattice 8^3x4", "# cut 200", 'beta,n,"phase, with comma"']
    back = read_csv(path)
    assert list(back) == list(columns)
    assert np.array_equal(back["beta"], beta)
    assert back["n"].dtype == np.int64
    assert np.array_equal(back["n"], columns["n"])
    assert back["phase, with comma"] == columns["phase, with comma"]
    assert [p.name for p in tmp_path.iterdir()] == ["curve.csv"]


@given(values=st.lists(st.floats(width=64, allow_nan=True), min_size=1, max_size=20))
def test_floats_survive_to_the_last_bit(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("floats") / "x.csv"
    write_csv(path, {"x": np.array(values)})
    assert np.array_equal(np.asarray(read_csv(path)["x"], dtype=float), np.array(values), equal_nan=True)


def test_other_programs_can_read_it(tmp_path):
    path = write_csv(tmp_path / "t.csv", {"beta": [5.69, 5.7], "chi": [1.3, 1.2]})
    with path.open(newline="") as file:
        assert list(csv.DictReader(file)) == [{"beta": "5.69", "chi": "1.3"}, {"beta": "5.7", "chi": "1.2"}]
    assert np.loadtxt(path, delimiter=",", skiprows=1).tolist() == [[5.69, 1.3], [5.7, 1.2]]


@pytest.mark.parametrize(
    "text",
    [
        "# a comment\nbeta chi\n5.69 1.3\n5.7 1.2\n",
        "beta\tchi\n5.69\t1.3\n\n5.7\t1.2",
        "beta;chi\r\n5.69;1.3\r\n5.7;1.2\r\n",
    ],
    ids=["blanks", "tabs", "semicolons"],
)
def test_tables_of_other_programs_are_read(tmp_path, text):
    (tmp_path / "t.txt").write_bytes(text.encode())
    got = read_csv(tmp_path / "t.txt")
    assert list(got) == ["beta", "chi"]
    assert got["chi"].tolist() == [1.3, 1.2]


def test_a_table_without_header_gets_names(tmp_path):
    (tmp_path / "t.dat").write_text("  1  0.549 \n  2  5.5e-1\n")
    got = read_csv(tmp_path / "t.dat")
    assert got["c0"].tolist() == [1, 2]
    assert got["c1"].tolist() == [0.549, 0.55]


@pytest.mark.parametrize(
    "columns",
    [{}, {"": [1.0]}, {"#x": [1.0]}, {"a": [1.0], "b": [1.0, 2.0]}, {"a": np.ones((2, 2))}, {"a": 3.0}],
)
def test_unfit_columns_are_refused_and_leave_no_file(tmp_path, columns):
    with pytest.raises(SpecError, match="`columns` must"):
        write_csv(tmp_path / "t.csv", columns)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [("a,b\n1,2\n3\n", "row 2"), ("# only\n\n", "no lines"), ("a,a\n1,2\n", "different column names")],
)
def test_unfit_tables_are_refused_in_words(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(SpecError, match=message):
        read_csv(tmp_path / "t.csv")
