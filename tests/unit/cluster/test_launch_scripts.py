"""Scripts that start clusters, run on this machine with stand-ins for every command that would leave it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from metalforge.cluster.launch.shell import SlurmJob, SshCluster, slurm_script, ssh_script
from reference.cluster_stand import Stand

SHELLCHECK = Path(sys.executable).with_name("shellcheck")


@pytest.fixture
def stand(tmp_path):
    return Stand(tmp_path)


def slurm(**more):
    return slurm_script(SlurmJob(**{"nodes": 3, "time": "1:00:00", "preset": "tiny", "out": Path("run")} | more))


def ssh(**more):
    return ssh_script(SshCluster(**{"hosts": ("h1", "me@h2"), "preset": "tiny", "out": Path("run")} | more))


def assert_all_ended(stand, nodes):
    """Every Ray that was started was ended, and no secret and no folder is left."""
    assert len(stand.of("ray", "start")) == len(stand.of("ray", "TERM")) == nodes
    tokens = {words[2] for words in stand.of("token")}
    assert [words[:2] + words[3:] for words in stand.of("token")] == [["token", "600", "unset"]] * nodes
    assert len(tokens) == 1
    (token,) = tokens
    assert len(token) == 64
    assert not [call for call in stand.called if call[1] != "token" and token in " ".join(call[2])]
    assert not [
        path for path in stand.folder.rglob("*") if path.name in {"token", "node.sh"} or ".cluster-" in str(path)
    ]


def test_a_job_starts_its_head_then_its_workers_then_the_campaign(stand):
    assert stand.run(slurm(gpus_per_node=4)) == 0, stand.said
    order = [(host, *words[:1]) for host, name, words in stand.called if name in {"ray", "metalforge"}]
    order = [call for call in order if call[1] in {"start", "scan"}]
    assert order[0] == ("n1", "start")
    assert sorted(order[1:3]) == [("n2", "start"), ("n3", "start")]
    assert order[3:] == [("n1", "scan")]
    head, *workers = stand.of("ray", "start")
    assert {"--head", "--block", "--port=20672", "--include-dashboard=false", "--num-gpus=4"} <= set(head)
    assert "--node-ip-address=10.0.0.1" in head  # the private one, which is not the first
    assert not [word for word in head if "client" in word]
    assert ["--address=10.0.0.1:20672" in words and "--block" in words for words in workers] == [True, True]
    assert stand.of("metalforge", "scan") == [
        ["scan", "--preset", "tiny", "--cluster", "10.0.0.1:20672", "--out", f"{stand.folder}/run"]
    ]
    (first, rest) = stand.of("srun")
    assert {"--nodes=1", "--nodelist=n1", "--gpus-per-node=4", "--cpus-per-task=16"} <= set(first)
    assert {"--nodes=2", "--nodelist=n2,n3", "--no-kill", "--kill-on-bad-exit=0"} <= set(rest)
    assert stand.of("scontrol", "requeue") == []
    assert_all_ended(stand, 3)


@pytest.mark.parametrize(
    ("plan", "state", "restarts", "requeued"),
    [
        ("75", "JobState=RUNNING", "3", 1),
        pytest.param("75", "JobState=CANCELLED", "0", 0, marks=pytest.mark.chaos),
        pytest.param("75", "JobState=RUNNING", "100", 0, marks=pytest.mark.chaos),
        ("3", "JobState=RUNNING", "0", 0),
    ],
)
def test_only_what_was_interrupted_queues_again(stand, plan, state, restarts, requeued):
    stand.told(plan=plan, state=f"JobId=42 {state} Reason=None")
    assert stand.run(slurm(nodes=1), SLURM_JOB_NODELIST="n1", SLURM_RESTART_COUNT=restarts) == int(plan)
    assert stand.of("scontrol", "requeue") == [["requeue", "42"]] * requeued
    assert_all_ended(stand, 1)
    if requeued:
        assert stand.called[-1][1:] == ("scontrol", ["requeue", "42"])  # when nothing of it runs any more


@pytest.mark.parametrize(
    "text", [slurm(nodes=1), pytest.param(ssh(hosts=("h1",)), marks=pytest.mark.chaos)], ids=["slurm", "ssh"]
)
def test_a_signal_reaches_the_campaign_and_its_exit_code_comes_back(stand, text):
    stand.told(plan="until-told")
    os.mkfifo(stand.folder / "running")
    process = stand.started(text, SLURM_JOB_NODELIST="n1")
    (stand.folder / "running").read_text()  # returns when the campaign runs
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 75
    assert len(stand.of("metalforge", "TERM")) == 1
    assert len(stand.of("scontrol", "requeue")) == len(stand.of("srun"))
    assert_all_ended(stand, 1 if stand.of("srun") else 2)


def test_where_there_is_a_journal_the_campaign_goes_on(stand):
    (stand.folder / "run").mkdir()
    (stand.folder / "run" / "journal.jsonl").touch()
    assert stand.run(slurm(nodes=1), SLURM_JOB_NODELIST="n1") == 0
    assert stand.of("metalforge", "scan") == []
    assert stand.of("metalforge", "resume") == [["resume", f"{stand.folder}/run", "--cluster", "10.0.0.1:20672"]]


@pytest.mark.chaos
def test_two_jobs_on_one_node_have_nothing_in_common(stand):
    stand.told(plan="until-told")
    os.mkfifo(stand.folder / "running")
    both = []
    for number in ("42", "43"):
        both.append(stand.started(slurm(nodes=1), SLURM_JOB_NODELIST="n1", SLURM_JOB_ID=number))
        (stand.folder / "running").read_text()
    ports = [
        {int(word.split("=")[1]) for word in words if "-port=" in word} - {0} for words in stand.of("ray", "start")
    ]
    assert len(ports) == 2
    assert not set.intersection(*ports)
    assert len(list(stand.folder.glob("run.cluster-4?/token"))) == 2
    for process in both:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert len({words[2] for words in stand.of("token")}) == 2
    assert len(stand.of("ray", "TERM")) == 2


@pytest.mark.parametrize(
    ("more", "addresses", "code", "address"),
    [
        ({}, "203.0.113.7 fd00::1", 3, None),
        pytest.param({"allow_public_address": True}, "203.0.113.7", 0, "203.0.113.7", marks=pytest.mark.chaos),
        pytest.param({}, "127.0.0.1 172.31.0.4", 0, "172.31.0.4", marks=pytest.mark.chaos),
        ({"interface": "ib0"}, "10.0.0.1", 0, "172.16.5.9"),
    ],
)
def test_ray_is_told_a_private_address(stand, more, addresses, code, address):
    stand.told(addresses=addresses)
    assert stand.run(slurm(nodes=1, **more), SLURM_JOB_NODELIST="n1") == code
    started = [f"--node-ip-address={address}" in words for words in stand.of("ray", "start")]
    assert started == ([] if address is None else [True])
    assert ("--interface" in stand.said) is (code == 3)


def test_a_ray_that_knows_no_tokens_is_not_started(stand):
    stand.told(plan="old-ray")
    assert stand.run(slurm(nodes=1), SLURM_JOB_NODELIST="n1") == 3
    assert stand.of("ray") == stand.of("metalforge", "scan") == []


HOSTILE = 'it\'s $(touch pwned) "`touch pwned`" ; touch pwned & \\ #'


@pytest.mark.parametrize("made", [slurm, pytest.param(ssh, marks=pytest.mark.chaos)])
def test_no_path_is_taken_for_a_command(stand, made):
    text = made(spec=Path(f"{HOSTILE}.toml"), preset=None, out=Path(f"-{HOSTILE}"), activate=Path(HOSTILE))
    (stand.folder / HOSTILE).write_text("activated=1\n")
    hosts = ("n1", "h1", "me@h2")
    for host in hosts[1:]:
        (stand.folder / f"home-{host}").mkdir()
        (stand.folder / f"home-{host}" / HOSTILE).write_text("activated=1\n")
    assert stand.run(text) == 0, stand.said
    (scan,) = stand.of("metalforge", "scan")
    assert scan[1] == f"{HOSTILE}.toml"
    assert scan[-1] == f"{stand.folder}/./-{HOSTILE}"
    assert not list(stand.folder.rglob("pwned"))
    assert_all_ended(stand, 3)


def test_hosts_get_the_token_through_the_connection_and_end_with_the_campaign(stand):
    assert stand.run(ssh()) == 0
    head, *workers = stand.of("ray", "start")
    port = next(word for word in head if word.startswith("--port=")).split("=")[1]
    assert ["--address=10.0.0.1:" + port in words for words in workers] == [True, True]
    assert {host for host, name, words in stand.called if (name, *words[:1]) == ("ray", "start")} == {
        "n1",
        "h1",
        "me@h2",
    }
    assert all(words[:2] == ["-o", "BatchMode=yes"] for words in stand.of("ssh"))
    assert_all_ended(stand, 3)


@pytest.mark.chaos
def test_what_a_killed_script_left_is_stopped_by_name(stand):
    stand.told(plan="until-told")
    os.mkfifo(stand.folder / "running")
    with stand.started(ssh(), stderr=subprocess.DEVNULL) as process:
        campaign = int((stand.folder / "running").read_text())
        process.kill()
    os.kill(campaign, signal.SIGKILL)
    assert stand.of("ray", "TERM") == []
    assert stand.run(ssh()) == 2
    assert "--stop" in stand.said
    assert stand.run(ssh(preset=None, stop=True)) == 0
    assert_all_ended(stand, 3)
    assert stand.run(ssh(preset=None, stop=True)) == 0  # nothing is left to do


@pytest.mark.parametrize("text", [slurm(), ssh()], ids=["slurm", "ssh"])
def test_scripts_are_clean(text, tmp_path):
    # What runs on a node is the same in both but for numbers, and is looked at once.
    within = text.partition("<<'END_OF_NODE_SCRIPT'\n")[2].partition("END_OF_NODE_SCRIPT\n")[0]
    parts = {"main": text} | ({"node": "#!/bin/bash\n" + within} if "srun" in text else {})
    for name, part in parts.items():
        (tmp_path / name).write_text(part)
        assert subprocess.run(["bash", "-n", tmp_path / name], check=False).returncode == 0
        found = subprocess.run([SHELLCHECK, tmp_path / name], capture_output=True, text=True, check=False)
        assert (found.returncode, found.stdout) == (0, "")
