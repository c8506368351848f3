"""Clusters that campaigns share, lanes that are given up, and what is refused with a clear line."""

import json
import os
import subprocess
import sys

import msgspec
import pytest

from reference.far_campaigns import (
    FREE,
    LATE_S,
    STEADY,
    FarCampaign,
    longer,
)

pytestmark = pytest.mark.cluster


def test_campaigns_share_a_cluster_and_are_told_when_nothing_is_free(nodes, whole, tmp_path):
    two = msgspec.structs.replace(longer(STEADY, 50_000), name="two")
    two = msgspec.structs.replace(two, running=msgspec.structs.replace(two.running, producers=2))
    first, second = FarCampaign(tmp_path, two, nodes), FarCampaign(tmp_path, longer(FREE, 50_000), nodes)
    third = FarCampaign(tmp_path, STEADY, nodes)
    holding = [first.scan()]
    assert first.reached(60)
    holding.append(second.scan())
    assert second.reached(60)
    assert {visit.substrate for visit in second.state.visits} == {"cpu:0.node-3"}
    assert third.ended(third.scan()) == 3
    assert "no core is free" in third.said
    assert "hint:" in third.said
    assert not third.directory.exists()
    holding[1].terminate()
    assert holding[1].wait(LATE_S) == 75, second.said
    assert third.ended(third.scan()) == 0, third.said
    assert third.faults(whole) == []
    holding[0].terminate()
    assert holding[0].wait(LATE_S) == 75, first.said


def test_a_lane_that_kills_its_worker_is_quarantined(nodes, told, tmp_path):
    told.write_text(json.dumps({str(nodes.nodes()[1].number): ["dies"]}))
    far = FarCampaign(tmp_path, FREE, nodes)
    assert far.ended(far.scan()) == 0, far.said
    reasons = [d.reason for d in far.state.decisions if d.what == "lane"]
    assert any("quarantined after 3 failures" in reason for reason in reasons), reasons
    assert far.state.finished.stopped_by == "trajectories"


def answer(*arguments, folder, **environment):
    """Run a verb that is refused; return its exit code and what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "metalforge", *map(str, arguments)],
        env=os.environ | environment, cwd=folder, capture_output=True, text=True, timeout=LATE_S, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert [line.partition(" ")[0] for line in lines[-2:]] == ["error:", "hint:"], done.stderr
    assert len(lines) <= 3, done.stderr  # Ray may have a line of its own
    return done.returncode, done.stderr


def test_an_address_where_nobody_is(tmp_path):
    for address in ("127.0.0.1:9", "ray://127.0.0.1:9"):
        code, said = answer("scan", "--preset", "tiny", "--cluster", address, "--out", "new", folder=tmp_path)
        assert (code, address in said) == (3, True)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_token(nodes, tmp_path):
    token = tmp_path / "token"
    token.write_text("0" * 64)
    given = nodes.environment() | {"RAY_AUTH_TOKEN_PATH": str(token)}
    # By the address in RAY_ADDRESS, which is named in what is said.
    code, said = answer("scan", "--preset", "tiny", "--cluster", "auto", "--out", "new", folder=tmp_path, **given)
    assert (code, "token" in said, nodes.address in said) == (3, True, True)
    assert not (tmp_path / "new").exists()


def test_auto_finds_a_cluster_by_the_file_that_ray_keeps(nodes, tmp_path):
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(nodes.address)  # as `ray start --head` writes it
    given = os.environ | nodes.environment() | {"RAY_ADDRESS": "", "RAY_TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "metalforge", "devices", "--cluster", "auto", "--json"],
        env=given, cwd=tmp_path, capture_output=True, text=True, timeout=LATE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {node["node"] for node in json.loads(done.stdout)["nodes"]} == {node.id for node in nodes.nodes()}


def test_ray_is_not_installed(tmp_path):
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\nfind = PathFinder.find_spec\n"
        "PathFinder.find_spec = lambda name, *more: None if name.partition('.')[0] == 'ray' else find(name, *more)\n"
    )
    for address in ("local:2x1", "auto"):
        code, said = answer(
            "scan", "--preset", "tiny", "--cluster", address, "--out", "new", folder=tmp_path, PYTHONPATH=str(hook)
        )
        assert (code, "metalforge[ray]" in said) == (3, True)
    assert [path.name for path in tmp_path.iterdir()] == ["hook"]


def test_a_directory_that_is_in_use_or_has_nothing(nodes, tmp_path):
    far = FarCampaign(tmp_path, longer(STEADY, 50_000), nodes)
    driver = far.scan()
    assert far.reached(60)
    given = nodes.environment()
    for verb in ("scan", "resume"):
        arguments = (far.file, "--cluster", nodes.address, "--out") if verb == "scan" else ()
        code, said = answer(verb, *arguments, far.directory, folder=tmp_path, **given)
        assert (code, str(far.directory) in said) == (2, True)
    driver.terminate()
    assert far.ended(driver) == 75
    code, said = answer("attach", far.directory, folder=tmp_path, **given)
    assert (code, "resume" in said) == (2, True)
    code, said = answer("attach", tmp_path / "nothing", folder=tmp_path, **given)
    assert (code, "nothing" in said) == (2, True)
    assert not (tmp_path / "nothing").exists()
    assert far.state.finished is None


SECOND = """
from pathlib import Path
from metalforge.cluster.address import ClusterAddress
from metalforge.cluster.joining import join, leave
from metalforge.cluster.local import LocalCluster
from metalforge.core.errors import PlacementError

one = ClusterAddress("local", nodes=1, cores=1)
leave(join(one, Path("first")), one, Path("first"), stop=True)
try:
    join(one, Path("second"))
except PlacementError:
    print("refused, left:", LocalCluster.find(Path("second") / "cluster"))
"""


@pytest.mark.long
def test_a_cluster_that_cannot_be_joined_is_not_left_behind(tmp_path):
    # Ray has read the first one's token: it does not get into a second one with another.
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    done = subprocess.run([sys.executable, "-c", SECOND], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "refused, left: None", done.stderr
