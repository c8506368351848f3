"""A campaign by the front door: run from a spec, loaded in another process with the same numbers, rows as arrays."""

import json
import subprocess
import sys

import numpy as np
import pytest

from metalforge import campaign
from metalforge.core.errors import MetalforgeError, SpecError, UnknownNameError
from metalforge.lattice.campaign import Lattice

SPEC = campaign.CampaignSpec(
    name="door",
    theory=Lattice(volumes=((4, 4, 4, 2),), beta_min=4.9, beta_max=5.3),
    budget=campaign.Budget(trajectories=500),
    warmup=campaign.WarmUpPolicy(shortest=10, longest=40),
    steering=campaign.Steering(visit=80, initial=4),
    running=campaign.Running(deterministic=True, producers=2),
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("door") / "run"


@pytest.fixture(scope="module")
def found(directory):
    return campaign.run(SPEC, directory)


def test_a_new_process_loads_the_same_numbers(found, directory):
    code = (
        "import json, sys\n"
        "from metalforge import campaign\n"
        "found = campaign.load(sys.argv[1])\n"
        "sums = {name: float(rows['plaquette'].sum()) for name, rows in found.rows.items()}\n"
        "print(json.dumps([found.value, found.error, found.established, found.reason, found.state.digest(), sums]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(directory)], capture_output=True, text=True, check=True)
    sums = {name: float(rows["plaquette"].sum()) for name, rows in found.rows.items()}
    wanted = [found.value, found.error, found.established, found.reason, found.state.digest(), sums]
    assert json.loads(done.stdout) == wanted


def test_a_result_says_what_it_rests_on(found):
    assert found.stopped_by == "trajectories"
    assert found.spec == SPEC
    assert 4.9 < found.value < 5.3
    assert not found.established
    assert all(item.name in found.reason for item in found.evidence if not item.holds)
    assert str(found).startswith("beta_c(4^3x2): not established")


def test_rows_are_those_of_the_journal(found):
    assert sum(len(rows["update"]) for rows in found.rows.values()) == found.state.trajectories
    for name, rows in found.rows.items():
        log = found.state.chains[name]
        assert np.array_equal(rows["plaquette"], log.column("plaquette", measured=False))
        assert np.array_equal(rows["plaquette"][rows["phase"] == "measure"], log.column("plaquette"))


@pytest.mark.usefixtures("undrawn")
def test_without_a_directory_nothing_is_kept_and_the_numbers_are_the_same(found, tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_bytes((found.directory / "spec.toml").read_bytes())
    again = campaign.run(spec)
    assert again.directory is None
    assert again.state.digest() == found.state.digest()
    with pytest.raises(MetalforgeError, match="report"):
        again.report()
    assert again.report(tmp_path / "page").exists()


def test_resume_extends_a_campaign(found, directory):
    more = campaign.resume(directory, campaign.Extension(trajectories=100))
    assert more.state.trajectories > found.state.trajectories
    assert campaign.load(directory).state.digest() == more.state.digest()


def test_a_frame_where_pandas_is(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MetalforgeError, match="pandas"):
        found.frame()
    monkeypatch.undo()
    pandas = pytest.importorskip("pandas")
    frame = found.frame()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == found.state.trajectories
    assert list(frame.columns[:6]) == ["chain", "system", "coordinate", "start", "update", "phase"]


def test_what_is_no_campaign_is_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="tiny"):
        campaign.run("tinny")
    with pytest.raises(SpecError, match=r"nowhere\.toml"):
        campaign.run("nowhere.toml")
    with pytest.raises(MetalforgeError):
        campaign.load(tmp_path)
