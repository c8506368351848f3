"""Launch scripts with Ray itself: only what starts processes on other machines is a stand-in."""

import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from metalforge import campaign
from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.spec import preset
from metalforge.cluster.launch.shell import SlurmJob, slurm_script
from metalforge.cluster.marked import wait_until
from reference.cluster_stand import Stand
from reference.document_blocks import PAGES, run_page, runnable

pytestmark = pytest.mark.cluster

BIN = Path(sys.executable).parent
NEED_RAY = [page for page in PAGES if runnable(page, frozenset({"ray"}))]


class RealNodes(Stand):
    """Two nodes of a job on this machine, with Ray and metalforge as they are."""

    def __init__(self, folder, trajectories):
        super().__init__(folder, ("srun", "scontrol", "hostname", "getent", "ip"))
        self.told(addresses=subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout)
        self.spec = msgspec.structs.replace(preset("tiny"), budget=campaign.Budget(trajectories=trajectories))
        self.told(**{"spec.toml": spec_text(self.spec)})
        nodes = {"nodes": 2, "cpus_per_node": 1, "allow_public_address": True, "patience_s": 90}
        self.text = slurm_script(SlurmJob(time="1:00:00", spec=Path("spec.toml"), out=Path("run"), **nodes))
        path = f"{self.bin}:{BIN}:/usr/bin:/bin"
        self.environment |= {"PATH": path, "SLURM_JOB_NODELIST": "n1,n2", "STAND_ONE_HOST": "1"}

    def assert_the_rows_of_one_machine(self):
        here, there = campaign.run(self.spec).rows, campaign.load(self.folder / "run").rows
        assert here.keys() == there.keys()
        for chain, columns in here.items():
            assert all(np.array_equal(columns[name], there[chain][name]) for name in columns)
        assert not list(self.folder.glob("*.cluster-*"))


def test_a_job_of_two_nodes_has_the_rows_of_one_machine(tmp_path):
    job = RealNodes(tmp_path, 600)
    assert job.run(job.text, timeout=150) == 0, job.said
    assert "2 nodes" in job.said
    assert job.of("scontrol", "requeue") == []
    job.assert_the_rows_of_one_machine()


@pytest.mark.long
def test_a_job_that_meets_its_limit_queues_again_and_goes_on(tmp_path):
    job = RealNodes(tmp_path, 4000)
    process = job.started(job.text, stderr=subprocess.DEVNULL)
    journal = tmp_path / "run" / "journal.jsonl"
    assert wait_until(lambda: journal.exists() and journal.read_text().count("\n") > 20, 120)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 75
    assert job.of("scontrol", "requeue") == [["requeue", "42"]]
    assert campaign.load(tmp_path / "run").state.finished is None
    assert job.run(job.text, timeout=300) == 0, job.said
    assert job.of("scontrol", "requeue") == [["requeue", "42"]]
    job.assert_the_rows_of_one_machine()


@pytest.mark.long
@pytest.mark.parametrize("page", NEED_RAY, ids=lambda page: page.name)
def test_a_page_can_be_followed_where_ray_is(page, tmp_path):
    """Every step of it that needs no other machine, in its order."""
    assert run_page(runnable(page, frozenset({"ray"})), tmp_path)
