"""Recorded data in other packages: read where it is, in the form it has, or refused by name."""

import subprocess
import sys

import numpy as np
import pytest

from experiments import recorded as module
from experiments.recorded import recorded, recorded_names, santa_fe_laser
from metalforge.core.errors import PluginError, SpecError, UnknownNameError

HEAD = "#Speech\n@problemName Two\n@classLabel {classes}\n@data\n"


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A package with data in the archive's form, and a function that adds to it."""
    (tmp_path / "carrier").mkdir()
    (tmp_path / "carrier" / "__init__.py").write_text("raise ImportError('data is read without importing')\n")
    (tmp_path / "carrier" / "data").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(module, "ARCHIVE", ("carrier", "data"))

    def add(name, text, classes="true a b"):
        folder = tmp_path / "carrier" / "data" / name
        folder.mkdir()
        for part in ("TRAIN", "TEST"):
            (folder / f"{name}_{part}.ts").write_text(HEAD.format(classes=classes) + text)

    return add


def test_series_keep_their_lengths_channels_and_labels(archive):
    archive("Two", "1,2,3:4,5,6:a\n\n# between\n-1.5,2e3:0,0:b b\n")
    data = recorded("Two")
    assert [one.shape for one in data.train] == [(3, 2), (2, 2)]
    assert data.train[0].tolist() == [[1, 4], [2, 5], [3, 6]]
    assert data.test[1].tolist() == [[-1.5, 0], [2000, 0]]
    assert data.test_labels.tolist() == ["a", "b b"]


def test_only_sets_with_classes_are_named(archive, tmp_path):
    archive("Two", "1:a\n")
    archive("Numbers", "1:0.3\n", classes="false")
    (tmp_path / "carrier" / "data" / "README").write_text("nothing")
    assert recorded_names() == ("Two",)
    with pytest.raises(UnknownNameError, match="did you mean `Two`"):
        recorded("Tow")


@pytest.mark.parametrize("line", ["1,2:3:a", "1,x:a", ":a"])
def test_a_line_that_is_no_series_is_named(archive, line):
    archive("Two", f"1,2:a\n{line}\n")
    with pytest.raises(SpecError, match=r"Two_TRAIN.ts, line 6"):
        recorded("Two")


def test_without_the_package_it_is_said_where_data_comes_from(monkeypatch):
    monkeypatch.setattr(module, "ARCHIVE", ("absent_package", "data"))
    assert recorded_names() == ()
    with pytest.raises(PluginError, match="absent_package"):
        recorded("JapaneseVowels")


def test_the_laser_is_read_without_importing_the_package():
    code = "import sys; from experiments.recorded import santa_fe_laser as f; f(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "reservoirpy" not in done.stdout.split()
    laser = santa_fe_laser()
    assert laser.shape == (10093, 1)
    assert laser[:10, 0].tolist() == [86, 141, 95, 41, 22, 21, 32, 72, 138, 111]  # as the competition gave it out
    assert np.all((laser >= 0) & (laser <= 255) & (laser == np.round(laser)))
