"""What may be asked of a launcher: options become checked text, and what could be misread is refused."""

import json
import os
import shlex
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType

import pytest
import typer.testing
import yaml

from metalforge.campaign.report.spec_text import spec_text
from metalforge.campaign.spec import preset
from metalforge.cli.cluster import app
from metalforge.cluster import (
    check_node,
    cluster_requirements,
    kubernetes_manifest,
    wait_for_nodes,
    yaml_documents,
)
from metalforge.cluster.launch import requirements
from metalforge.cluster.launch.checks import slurm_seconds
from metalforge.cluster.launch.kubernetes import KubernetesJob
from metalforge.core.errors import PlacementError, PluginError, SpecError

SLURM = ["slurm", "--nodes", "2", "--time", "1:00:00", "--preset", "tiny"]
KUBERNETES = ["kubernetes", "--image", "lab/metalforge:1", "--workers", "8", "--gpus-per-worker", "4"]


def called(*arguments):
    return typer.testing.CliRunner().invoke(app, [str(word) for word in arguments])


def directives(text):
    return {line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")}


def test_the_batch_script_asks_for_what_was_asked():
    done = called(
        *("slurm", "--nodes", 8, "--gpus-per-node", 4, "--time", "12:00:00", "--spec", "spec.toml"),
        *("--partition", "gpu,long", "--account", "p-42", "--constraint", "a100|h100", "--notice", 300),
    )
    assert done.exit_code == 0, done.output
    wanted = {"nodes=8", "gpus-per-node=4", "time=12:00:00", "signal=B:TERM@300", "requeue", "open-mode=append"}
    wanted |= {"no-kill", "exclusive", "mem=0", "partition=gpu,long", "account=p-42", "constraint=a100|h100"}
    assert wanted <= directives(done.output)
    some = called(*SLURM, "--cpus-per-node", 16, "--memory", "64G")
    assert {"cpus-per-task=16", "mem=64G"} <= directives(some.output)
    assert "exclusive" not in directives(some.output)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("12:00:00", 43200),
        ("2-12", 216000),
        ("2-12:30", 217800),
        ("1-00:00:01", 86401),
        ("48:00:00", 172800),
    ],
)
def test_times_are_read_as_slurm_reads_them(text, seconds):
    assert slurm_seconds("time", text) == seconds


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("--time", text) for text in ("0:10", "12:60:00", "tomorrow", "1-24", "-1", "1:00:00\n", "٣:00:00")],
        *[("--nodes", number) for number in (0, -3)],
        *[("--partition", text) for text in ("a b", "x\n#SBATCH --uid=0", "$(id)", "a'b", "--wrap=id", "x;y")],
        *[("--name", text) for text in ("a b", 'x"', "`id`")],
        *[("--interface", text) for text in ("ib0; id", "-a", "x" * 20)],
        *[("--out", text) for text in ("a\nb", "a\x1b[0m")],
        *[("--preset", text) for text in ("a b", "x\n")],
        *[("--gpus-per-node", -1), ("--cpus-per-node", 0), ("--requeues", -1), ("--notice", 3)],
    ],
)
def test_what_a_script_could_misread_is_refused(option, value):
    done = called(*SLURM, option, value)
    assert isinstance(done.exception, SpecError), done.output
    assert done.output == ""
    assert option.removeprefix("--").replace("-", "_") in str(done.exception).replace("-", "_")


@pytest.mark.parametrize("options", [[], ["--preset", "tiny", "--spec", "x.toml"]])
@pytest.mark.parametrize("verb", [SLURM[:5], KUBERNETES, ["ssh", "h1"]])
def test_a_campaign_is_one_spec_or_one_preset(verb, options):
    assert isinstance(called(*verb, *options).exception, SpecError | FileNotFoundError)


@pytest.mark.parametrize("host", ["-oProxyCommand=id", "a b", "h;id", "$(id)", "me@", "a@b@c", "h1\n"])
def test_a_host_is_no_option_of_ssh(host):
    assert isinstance(called("ssh", "--preset", "tiny", "--", host).exception, SpecError)


@pytest.mark.parametrize(
    "more", [["h1"], ["me@localhost"], ["--ports", "80"], ["--ports", "65000"], ["--name", "../x"], ["--name", "A"]]
)
def test_hosts_ports_and_names_have_bounds(more):
    assert isinstance(called("ssh", "h1", "--preset", "tiny", *more).exception, SpecError)


def test_clusters_of_two_names_have_other_ports_and_folders():
    first, second = (called("ssh", "h1", "--preset", "tiny", "--name", name).output for name in ("one", "two"))
    assert [text.count(".metalforge/cluster/one") > 0 for text in (first, second)] == [True, False]
    ports = [next(line for line in text.splitlines() if line.startswith("ports=")) for text in (first, second)]
    assert ports[0] != ports[1]


def test_run_hands_the_process_over_to_the_script(monkeypatch):
    handed = []
    monkeypatch.setattr(os, "execvp", lambda program, words: handed.append((program, words)))
    assert called("ssh", "h1", "--preset", "tiny", "--run", "--stop").exit_code == 0
    ((program, words),) = handed
    assert (program, words[:2]) == ("bash", ["bash", "-c"])
    assert "action=stop\n" in words[2]


def manifest(*options):
    """The objects by kind, which are the same in YAML and in JSON."""
    plain, as_json = called(*KUBERNETES, *options), called(*KUBERNETES, *options, "--json")
    assert plain.exit_code == as_json.exit_code == 0, plain.exception
    objects = json.loads(as_json.output)["items"]
    assert list(yaml.safe_load_all(plain.output)) == objects
    return {record["kind"]: record for record in objects}


def test_the_manifest_is_a_ray_job_behind_a_wall(tmp_path):
    spec = tmp_path / "it's a spec.toml"
    note = "# 'quoted' \"twice\" \\ {{x}} * & ! yes: no\n# ---\n# kind: Service # é 🜁\n"
    spec.write_text(note + spec_text(preset("tiny")))
    found = manifest("--spec", spec, "--name", "scan-one", "--toleration", "spot", "--node-selector", "gpu=a100")
    assert sorted(found) == ["ConfigMap", "NetworkPolicy", "PersistentVolumeClaim", "RayJob"]
    assert found["ConfigMap"]["data"]["spec.toml"] == spec.read_text()
    assert found["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]
    job = found["RayJob"]["spec"]
    cluster = job["rayClusterSpec"]
    assert found["RayJob"]["apiVersion"] == "ray.io/v1"
    assert cluster["authOptions"] == {"mode": "token", "secretName": "scan-one-token"}
    assert (job["shutdownAfterJobFinishes"], job["backoffLimit"]) == (True, 20)
    assert cluster["headGroupSpec"]["serviceType"] == "ClusterIP"
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    (group,) = cluster["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (8, 8, 8)
    worker = group["template"]["spec"]
    assert worker["terminationGracePeriodSeconds"] == 120
    # Within the grace, campaigns give the node up before Ray is told to end.
    hook = worker["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert hook == ["metalforge", "cluster", "leave", "--grace", "95"]
    assert worker["nodeSelector"] == {"gpu": "a100"}
    assert worker["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert (
        worker["volumes"][0]["persistentVolumeClaim"]["claimName"] == found["PersistentVolumeClaim"]["metadata"]["name"]
    )
    (container,) = worker["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
    wall = found["NetworkPolicy"]["spec"]
    own = wall["podSelector"]["matchLabels"]
    for pods in (cluster["headGroupSpec"], group):
        assert own.items() <= pods["template"]["metadata"]["labels"].items()
        assert pods["template"]["spec"]["automountServiceAccountToken"] is False
    inside, operator = wall["ingress"]
    assert inside == {"from": [{"podSelector": {"matchLabels": own}}]}
    assert operator["ports"] == [{"protocol": "TCP", "port": 8265}]
    assert "kuberay-operator" in str(operator["from"])


@pytest.mark.parametrize(("begun", "verb"), [(False, "scan"), (True, "resume")])
def test_the_entry_point_begins_or_goes_on(begun, verb, tmp_path):
    job = manifest("--preset", "tiny", "--out", "runs/one")["RayJob"]["spec"]
    (tmp_path / "metalforge").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "metalforge").chmod(0o755)
    disk = tmp_path / "disk"
    (disk / "runs/one").mkdir(parents=True)
    if begun:
        (disk / "runs/one/journal.jsonl").touch()
    command = shlex.split(job["entrypoint"].replace("/campaign", str(disk)))
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}
    )
    assert done.stdout.split()[0] == verb
    assert done.stdout.split("--cluster ")[1].split()[0] == "auto"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--name", "x\nkind: Service"),
        ("--name", "-x"),
        ("--image", "a b"),
        ("--image", 'x"\n'),
        ("--storage", "1Gi\n"),
        ("--namespace", "a: b"),
        ("--token-secret", "{x}"),
        ("--out", "../etc"),
        ("--out", "/etc"),
        ("--out", "a b"),
        ("--node-selector", "a"),
        ("--node-selector", "a=b: c"),
        ("--toleration", "a\nb"),
        ("--ray-version", "2.51.2"),
        ("--ray-version", "new"),
        ("--workers", "0"),
        ("--grace", "1"),
    ],
)
def test_what_a_manifest_could_misread_is_refused(option, value):
    assert isinstance(called(*KUBERNETES, "--preset", "tiny", option, value).exception, SpecError)


def test_a_wrong_spec_is_refused_before_it_is_sent(tmp_path):
    (tmp_path / "spec.toml").write_text("[lattice]\nvolumes = 3\n")
    with pytest.raises(SpecError):
        kubernetes_manifest(KubernetesJob(image="x", workers=1, spec=tmp_path / "spec.toml"))


def test_what_exists_is_used():
    found = manifest("--preset", "tiny", "--claim", "mine", "--token-secret", "theirs", "--operator-namespace", "ray")
    assert sorted(found) == ["NetworkPolicy", "RayJob"]
    assert "'claimName': 'mine'" in str(found["RayJob"])
    assert found["RayJob"]["spec"]["rayClusterSpec"]["authOptions"]["secretName"] == "theirs"
    assert "{'kubernetes.io/metadata.name': 'ray'}" in str(found["NetworkPolicy"])


@pytest.mark.parametrize(
    "value",
    [
        "",
        "no",
        "y",
        "null",
        "1e5",
        "0x1f",
        "12:30:45",
        "~",
        "- a",
        "a: b",
        "# x",
        "é\u2028\x85\x7f",
        "🜁",
        "a\n---\nb",
        " x ",
    ],
)
def test_yaml_gives_back_what_was_written(value):
    record = {value or "empty": [value, {"a": value, "b": [], "c": {}}, [1, None, True, 2.5]]}
    assert list(yaml.safe_load_all(yaml_documents([record, {"x": value}], "a\nb"))) == [record, {"x": value}]


def installed(monkeypatch, **versions):
    def version(name):
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(requirements, "version", version)


def test_what_is_missing_comes_with_the_command_that_adds_it(monkeypatch):
    installed(monkeypatch)
    assert ["pip install" in found.state for found in cluster_requirements()] == [True] * 3
    assert "pip install 'metalforge[ray]'" in cluster_requirements()[0].state
    installed(monkeypatch, ray="2.40.0", grpcio="1.70")
    ray, client, _ = cluster_requirements()
    assert "too old" in ray.state
    assert client.state == "1.70"


def test_a_node_joins_with_a_token_that_is_its_owners(monkeypatch, tmp_path):
    token = tmp_path / "token"
    token.write_text("0" * 64)
    token.chmod(0o600)
    installed(monkeypatch, ray="2.60.0")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    assert check_node() == "Ray 2.60.0, token"
    token.chmod(0o640)
    with pytest.raises(SpecError, match="chmod"):
        check_node()
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(SpecError, match="none"):
        check_node()
    monkeypatch.delenv("RAY_AUTH_MODE")
    with pytest.raises(SpecError, match="RAY_AUTH_MODE"):
        check_node()
    installed(monkeypatch, ray="2.51.1")
    with pytest.raises(PluginError, match=r"2\.52"):
        check_node()


class FakeRay(ModuleType):
    """A cluster whose nodes come one a look."""

    def __init__(self, nodes):
        super().__init__("ray")
        self.looks, self.most, self.joined, self.left = 0, nodes, [], 0

    def init(self, address, **options):
        self.joined.append(address)
        if len(self.joined) == 1:
            raise ConnectionError("not ready")

    def nodes(self):
        self.looks += 1
        return [{"Alive": i < self.looks} for i in range(self.most)]

    def shutdown(self):
        self.left += 1


@pytest.mark.parametrize(("wanted", "seconds", "came"), [(3, 60.0, 3), (9, 0.01, 1)])
def test_waiting_ends_when_all_came_or_when_it_is_time(monkeypatch, wanted, seconds, came):
    ray = FakeRay(5)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr("metalforge.cluster.joining.AGAIN_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        if seconds < 1:
            ray.joined.append("before")  # it is ready at once
            assert 1 <= wait_for_nodes(address, wanted, seconds) <= 5
        else:
            assert wait_for_nodes(address, wanted, seconds) == came
            assert ray.joined == [address, address]
    assert ray.left == 1


def test_waiting_ends_where_no_head_is_or_will_be(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", FakeRay(1))
    with socket.create_server(("127.0.0.1", 0)) as other:
        closed = f"127.0.0.1:{other.getsockname()[1]}"
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(PlacementError, match="no head"):
        wait_for_nodes(closed, 1, 60.0, head_process=ended.pid)
    with pytest.raises(PlacementError, match="no head"):
        wait_for_nodes(closed, 1, 0.0)
    with pytest.raises(SpecError, match="HOST:PORT"):
        wait_for_nodes("ray://h:1", 1, 0.0)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PluginError, match="metalforge\\[ray\\]"):
        wait_for_nodes(closed, 1, 0.0)


def test_paths_are_not_looked_for_here():
    done = called(*SLURM[:5], "--spec", Path("/scratch/of/a/cluster/spec.toml"))
    assert "what=(/scratch/of/a/cluster/spec.toml)" in done.output
