"""What a cluster on this machine refuses, and what it finds. Needs no Ray."""

import importlib.util

import pytest

from metalforge.cluster import LocalCluster, local, start_local
from metalforge.core.errors import PluginError, SpecError


@pytest.mark.parametrize(
    ("nodes", "cores", "named"), [(0, 1, "nodes"), (65, 1, "nodes"), (1, 0, "cores"), (1, 1025, "cores")]
)
def test_numbers_that_no_cluster_has_are_named(tmp_path, nodes, cores, named):
    with pytest.raises(SpecError, match=f"`{named}`"):
        start_local(nodes, cores, tmp_path / "cluster")
    assert not (tmp_path / "cluster").exists()


def test_without_ray_the_command_is_given_and_nothing_is_left(tmp_path, monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr(local, "find_spec", lambda name: None if name == "ray" else there(name))
    with pytest.raises(PluginError, match=r"metalforge\[ray\]"):
        start_local(1, 1, tmp_path / "cluster")
    assert not (tmp_path / "cluster").exists()


def test_where_no_cluster_is_none_is_found_and_nothing_is_touched(tmp_path):
    (tmp_path / "cluster.json").write_text('{"keeper": 1}')
    (tmp_path / "cluster.token").write_text("not a token")
    assert LocalCluster.find(tmp_path) is None
    assert LocalCluster.find(tmp_path / "missing") is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.json", "cluster.token"]
