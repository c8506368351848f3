"""Clusters on this machine: started from a terminal that goes away, grown, robbed of nodes, ended without a trace."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from metalforge.cluster import LocalCluster, LocalClusterError, start_local
from metalforge.cluster.local import ClusterFolder
from metalforge.cluster.marked import is_marked, marked, wait_until
from reference.struck_nodes import kill_node, remove_node, signal_raylet

pytestmark = pytest.mark.cluster

DRIVER = """
import json, os, signal, sys, time
import ray
ray.init(log_to_driver=False, configure_logging=False, logging_level="ERROR", namespace="tests")
answer = None
{body}
print("answer", json.dumps(answer))
"""


def drive(cluster, body, **environment):
    """Run a driver in a process of its own: what Ray reads of the environment it reads once."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER.format(body=body)],
        env=os.environ | cluster.environment() | environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Ray says on the same stream what has become of nodes, when it comes to know.
    (said,) = [line.removeprefix("answer ") for line in done.stdout.splitlines() if line.startswith("answer ")]
    return json.loads(said)


def processes(folder):
    return list(marked(f"{ClusterFolder.of(folder).cluster}:"))


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    # Longer than the path of a Unix socket may be.
    return tmp_path_factory.mktemp("a folder with a name " + "n" * 100) / "cluster"


@pytest.fixture(scope="module")
def cluster(folder):
    script = "import sys; from metalforge.cluster import start_local; start_local(3, 2, sys.argv[1])"
    terminal = subprocess.Popen([sys.executable, "-c", script, str(folder)], start_new_session=True)
    assert terminal.wait(timeout=120) == 0
    with pytest.raises(ProcessLookupError):  # nothing of the cluster is in the session that ended
        os.killpg(terminal.pid, signal.SIGHUP)
    found = LocalCluster.find(folder)
    yield found
    found.stop()


def test_it_outlives_who_started_it_and_says_what_it_has(cluster, folder):
    assert [(node.number, node.cores) for node in cluster.nodes()] == [(0, 2), (1, 2), (2, 2)]
    record = json.loads((folder / "cluster.json").read_text())
    assert record["address"] == cluster.address == cluster.environment()["RAY_ADDRESS"]
    assert record["keeper"] == cluster.keeper
    assert [node["pid"] for node in record["nodes"]] == [node.pid for node in cluster.nodes()]
    known = "[(n['NodeID'], n['Resources']['CPU']) for n in ray.nodes() if n['Alive']]"
    assert sorted(drive(cluster, f"answer = {known}")) == sorted([node.id, 2.0] for node in cluster.nodes())


def test_the_token_is_in_one_file_and_on_no_command_line(cluster, folder):
    file = Path(cluster.environment()["RAY_AUTH_TOKEN_PATH"])
    assert file.parent == folder
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = [command_line(pid) for pid in processes(folder)]
    assert len(lines) >= 1 + 3 * 3 + 1  # the keeper; raylets, each with two agents; the head's server
    assert not [line for line in lines if file.read_text() in line]
    assert file.read_text() not in json.dumps(cluster.environment())


def test_who_has_no_token_is_refused(cluster, tmp_path):
    """By the head, which is asked here as a driver asks it first; drivers go on trying for 20 s."""
    script = """
import os, sys
from ray._raylet import GcsClient
try:
    GcsClient(address=os.environ["RAY_ADDRESS"]).internal_kv_keys(b"", None)
except Exception as error:
    sys.exit(str(error))
"""
    other = tmp_path / "token"
    other.write_text("0" * 64)
    refused = {}
    for environment in ({"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_TOKEN_PATH": str(other)}, {}):
        done = subprocess.run(
            [sys.executable, "-c", script], env=os.environ | cluster.environment() | environment,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        refused["".join(environment)] = done.stderr if done.returncode else ""
    assert "nauthenticated" in refused["RAY_AUTH_MODE"]
    assert "nauthenticated" in refused["RAY_AUTH_TOKEN_PATH"]
    assert refused[""] == ""


def listening(pids):
    """Addresses on which these processes listen, from the kernel's tables."""
    sockets = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets.update(re.findall(r"socket:\[(\d+)\]", os.readlink(entry)))
            except OSError:
                continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            (
                _,
                local,
                _,
                state,
                *_,
            ) = fields = line.split()
            if state == "0A" and fields[9] in sockets:
                found.add(local.split(":")[0])
    return found


def test_nothing_listens_beyond_the_loopback_interface(cluster, folder):
    body = """
@ray.remote(num_cpus=1)
class Held:
    def here(self): return ray.get_runtime_context().get_node_id()
held = [Held.options(scheduling_strategy="SPREAD", name=f"held{i}", lifetime="detached").remote() for i in range(3)]
answer = ray.get([one.here.remote() for one in held])
"""
    assert len(set(drive(cluster, body))) > 1
    v4, mapped, v6 = "0100007F", "0000000000000000FFFF00000100007F", "0" * 24 + "01000000"
    addresses = listening(processes(folder))
    assert addresses
    assert addresses <= {v4, mapped, v6}
    assert drive(cluster, "answer = [ray.kill(ray.get_actor(f'held{i}')) for i in range(3)]") == [None] * 3


def test_a_second_cluster_comes_and_goes_beside_it(cluster, folder, tmp_path):
    second = start_local(1, 1, tmp_path / "second")
    assert second.address != cluster.address
    assert second.environment()["RAY_AUTH_TOKEN_PATH"] != cluster.environment()["RAY_AUTH_TOKEN_PATH"]
    with pytest.raises(LocalClusterError, match="has a cluster"):
        start_local(1, 1, tmp_path / "second")
    temporary = ClusterFolder.of(second.folder).temporary
    assert temporary.is_dir()
    second.stop()
    second.stop()
    assert not second.nodes()
    assert not temporary.exists()
    assert list(second.folder.iterdir()) == []
    assert LocalCluster.find(second.folder) is None
    assert len(drive(cluster, "answer = [n['NodeID'] for n in ray.nodes() if n['Alive']]")) == 3


def test_nodes_come_and_are_killed(cluster):
    added = cluster.add_node(3)
    assert added.number == 3
    assert added in cluster.nodes()
    body = f"""
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as There
@ray.remote(num_cpus=3)
class Worker:
    def pid(self): return os.getpid()
worker = Worker.options(scheduling_strategy=There({added.id!r}, False), lifetime="detached", name="doomed").remote()
answer = ray.get(worker.pid.remote())
"""
    pid = drive(cluster, body)
    mark = f"{ClusterFolder.of(cluster.folder).cluster}:3"
    assert is_marked(pid, mark)
    assert is_marked(added.pid, mark)
    kill_node(cluster, 3)
    assert added not in cluster.nodes()
    assert list(marked(mark)) == []
    assert cluster.keeper == LocalCluster.find(cluster.folder).keeper


def test_a_node_that_is_taken_away_has_a_time_of_grace(cluster, tmp_path):
    """An actor that wants to know sets its own handler: Ray's ends the process at once."""
    node = cluster.nodes()[-1]
    body = f"""
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as There
@ray.remote
class Worker:
    def __init__(self):
        signal.signal(signal.SIGTERM, self.told)
    def told(self, number, frame):
        open({str(tmp_path / "told")!r}, "w").write("checkpoint")
        os._exit(0)
    def ready(self): return os.getpid()
worker = Worker.options(scheduling_strategy=There({node.id!r}, False), lifetime="detached", name="told").remote()
answer = ray.get(worker.ready.remote())
"""
    drive(cluster, body)
    remove_node(cluster, node.number, grace_s=20.0)
    assert (tmp_path / "told").read_text() == "checkpoint"
    assert node not in cluster.nodes()


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_a_node_is_silent_for_a_while(cluster):
    node = cluster.nodes()[1]
    signal_raylet(cluster, node.number, signal.SIGSTOP)
    assert wait_until(lambda: state(node.pid) == "T", 5.0)
    signal_raylet(cluster, node.number, signal.SIGCONT)
    assert wait_until(lambda: state(node.pid) != "T", 5.0)
    assert node in cluster.nodes()


def test_why_a_cluster_does_not_start_is_said_and_nothing_is_left(tmp_path, monkeypatch):
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text("raise RuntimeError('out of luck')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(LocalClusterError, match="out of luck"):
        start_local(1, 1, tmp_path / "cluster")
    assert list((tmp_path / "cluster").iterdir()) == []
    assert LocalCluster.find(tmp_path / "cluster") is None


def test_what_a_killed_keeper_leaves_is_ended_and_removed(tmp_path):
    cluster = start_local(1, 1, tmp_path / "orphan")
    place = ClusterFolder.of(cluster.folder)
    (node,) = cluster.nodes()
    os.kill(cluster.keeper, signal.SIGKILL)
    # Linux ends the raylet with its parent, before anybody looks.
    assert wait_until(lambda: not is_marked(node.pid, f"{place.cluster}:0"), 10.0)
    assert cluster.nodes() == ()
    assert place.temporary.exists()
    assert LocalCluster.find(cluster.folder) is None
    assert list(cluster.folder.iterdir()) == []
    assert not place.temporary.exists()
    assert list(marked(f"{place.cluster}:")) == []


def test_a_cluster_that_nobody_uses_ends(tmp_path):
    cluster = start_local(1, 1, tmp_path / "unused", idle_s=1.0)
    assert wait_until(lambda: not any(cluster.folder.iterdir()), 20.0)
    assert LocalCluster.find(cluster.folder) is None


@pytest.mark.long
def test_an_actor_is_a_user_whose_driver_has_gone(tmp_path):
    """As a campaign is whose terminal went away."""
    idle_s = 15.0
    cluster = start_local(1, 1, tmp_path / "used", idle_s=idle_s)
    body = f"""
import threading
@ray.remote
class Campaign:
    def start(self):
        threading.Timer({1.5 * idle_s}, os._exit, (0,)).start()
        return os.getpid()
answer = ray.get(Campaign.options(lifetime="detached", name="campaign").remote().start.remote())
"""
    pid = drive(cluster, body)
    mark = f"{ClusterFolder.of(cluster.folder).cluster}:0"
    assert wait_until(lambda: not is_marked(pid, mark), 60.0)
    assert len(cluster.nodes()) == 1
    assert wait_until(lambda: not any(cluster.folder.iterdir()), 60.0)


def test_a_cluster_ends_with_its_head(cluster, folder):
    """The last that is done to it: `stop` is then nothing."""
    place = ClusterFolder.of(folder)
    assert len(cluster.nodes()) > 1
    kill_node(cluster, 0)
    assert wait_until(lambda: not list(folder.iterdir()), 20.0)
    assert LocalCluster.find(folder) is None
    assert cluster.nodes() == ()
    assert wait_until(lambda: not list(marked(f"{place.cluster}:")), 5.0)  # the keeper is the last
    assert not place.temporary.exists()
