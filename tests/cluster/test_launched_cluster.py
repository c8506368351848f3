"""Launch scripts with Ray itself: only what starts processes on other machines is a stand-in."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from metalforge.cluster.launch import SlurmJob, slurm_script
from reference.cluster_stand import Stand, guide_steps

pytestmark = pytest.mark.cluster

BIN = Path(sys.executable).parent
CAMPAIGN = """#!/bin/bash
[[ $1 == cluster ]] && exec {bin}/metalforge "$@"
exec {bin}/python - "$@" <<'END'
import json, os, pathlib, sys
import ray
ray.init(address=sys.argv[sys.argv.index("--cluster") + 1], log_to_driver=False, logging_level="ERROR")
nodes = [node for node in ray.nodes() if node["Alive"]]
mode = ray.get(ray.remote(lambda: os.environ["RAY_AUTH_MODE"]).remote())
pathlib.Path("seen").write_text(json.dumps([len(nodes), sum(node["Resources"]["CPU"] for node in nodes), mode]))
sys.exit(75)
END
"""


def test_a_job_of_two_nodes_is_one_cluster_behind_a_token(tmp_path):
    stand = Stand(tmp_path, ("srun", "scontrol", "hostname", "getent", "ip"))
    stand.told(addresses=subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout)
    campaign = stand.bin / "metalforge"
    campaign.write_text(CAMPAIGN.format(bin=BIN))
    campaign.chmod(0o755)
    job = SlurmJob(nodes=2, time="1:00:00", preset="tiny", cpus_per_node=1, allow_public_address=True, patience_s=90)
    path = f"{stand.bin}:{BIN}:/usr/bin:/bin"
    given = {"PATH": path, "SLURM_JOB_NODELIST": "n1,n2", "STAND_ONE_HOST": "1"}
    assert stand.run(slurm_script(job), timeout=150, **given) == 75, stand.said
    assert json.loads((tmp_path / "seen").read_text()) == [2, 2.0, "token"]
    assert stand.of("scontrol", "requeue") == [["requeue", "42"]]
    assert not list(tmp_path.glob("*.cluster-*"))


def test_the_guide_can_be_followed_where_ray_is(tmp_path):
    """Every step of it that needs no other machine, in its order."""
    given = os.environ | {"PATH": f"{BIN}:/usr/bin:/bin"}
    steps = [
        code for mark, code in guide_steps() if mark == "ray" or "spec.toml --out here" in code or "> spec.toml" in code
    ]
    assert len(steps) >= 5
    for code in steps:
        command = ["bash", "-e", "-o", "pipefail", "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, env=given)
        assert done.returncode == 0, (code, done.stderr)
