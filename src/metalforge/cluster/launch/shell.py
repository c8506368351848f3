"""Bash scripts that start Ray and the campaign on that: for Slurm, and for plain hosts with the head here.

A script is made of settings, quoted, and the files of `scripts/`, which are as they are. What runs on a node
(`node.sh`) is the same for Slurm and for plain hosts; it travels inside of the script.
"""

import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from zlib import crc32

import msgspec

from metalforge.core import SpecError, require_at_least

from .checks import campaign_words, checked, path_text, slurm_seconds

Setting = str | int | Sequence[str]
PORTS = 16
"""How many ports a node has for its services: 0 is the head's, 1 to 8 are the others."""
FIRST_PORT, LAST_PORT = 20000, 32767
"""Above the ports of known services and below those that Linux gives to clients."""
BLOCK, BLOCKS = 1000, 12
"""Ports of a cluster of hosts: a block, so that a firewall can let just these through between them."""
_END = "END_OF_NODE_SCRIPT"


class RayLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """The campaign that is launched and what every node of its cluster is told; launchers add their own."""

    spec: Path | None = None
    preset: str | None = None
    out: Path = Path("campaign")
    name: str = "metalforge"
    gpus_per_node: int = 0
    cpus_per_node: int | None = None  # without: all
    activate: Path | None = None  # a file to source, as .venv/bin/activate
    interface: str | None = None  # without: a private address of the host
    allow_public_address: bool = False
    client: bool = False  # a port for ray:// addresses
    patience_s: int = 600

    def __post_init__(self) -> None:
        require_at_least(1, cpus_per_node=self.cpus_per_node, patience_s=self.patience_s)
        require_at_least(0, gpus_per_node=self.gpus_per_node)

    def script(
        self, head: str, own: Mapping[str, Setting], *, ports: str, worker_ports: tuple[int, int], main: str
    ) -> str:
        """Return a script: its first lines, settings, what all have, the script of a node, and its own part.

        `ports`: how bash computes the first port of a node; `worker_ports`: the range for its workers, 0 for any.
        """
        low, high = worker_ports
        node: dict[str, Setting] = {
            "activate": "" if self.activate is None else path_text("activate", self.activate),
            "interface": "" if self.interface is None else checked("interface", "interface", self.interface),
            "allow_public": "yes" if self.allow_public_address else "no",
            "client": "yes" if self.client else "no",
            "cpus": str(self.cpus_per_node or ""),
            "gpus": self.gpus_per_node,
            "worker_low": low,
            "worker_high": high,
        }
        common, ports = _part("common.sh"), f"ports={ports}\n"
        own = {"out": path_text("out", self.out), "patience": self.patience_s, "activate": node["activate"], **own}
        writing = (
            f"write_node_script() {{\n  cat >\"$state/node.sh\" <<'{_END}'\n"
            f"{_settings(node)}{ports}{common}\n{_part('node.sh')}{_END}\n}}\n"
        )
        parts = (head + _settings(own) + ports, common, _part("run.sh"), writing, _part(main))
        return "\n".join(parts)


class SlurmJob(RayLaunch, frozen=True, kw_only=True):
    """What is asked of Slurm for a campaign."""

    nodes: int
    time: str
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    memory: str | None = None
    notice_s: int = 120
    requeues: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, nodes=self.nodes)
        require_at_least(0, requeues=self.requeues)
        require_at_least(30, notice_s=self.notice_s)
        if slurm_seconds("time", self.time) < 2 * self.notice_s:
            raise SpecError(
                f"`time` must be at least twice the notice of {self.notice_s} s, in which chains are saved. "
                f"Got `{self.time}`\nhint: --time 12:00:00, or a shorter --notice"
            )


def slurm_script(job: SlurmJob) -> str:
    """Return the script for `sbatch`."""
    asked: dict[str, object] = {
        "job-name": job.name,
        "nodes": job.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": job.cpus_per_node,
        "gpus-per-node": job.gpus_per_node or None,
        "mem": "0" if job.memory is None and job.cpus_per_node is None else job.memory,  # 0: all that the node has
        "time": job.time,
        "partition": job.partition,
        "account": job.account,
        "qos": job.qos,
        "constraint": job.constraint,
        "reservation": job.reservation,
        "signal": f"B:TERM@{job.notice_s}",
        "open-mode": "append",
    }
    lines = [f"--{key}={checked('word', key, str(value))}" for key, value in asked.items() if value is not None]
    lines += ["--requeue", "--no-kill"] + ["--exclusive"] * (job.cpus_per_node is None)
    head = "#!/bin/bash\n" + "".join(f"#SBATCH {line}\n" for line in lines)
    own: dict[str, Setting] = {
        "what": campaign_words(job.spec, job.preset),
        "requeues": job.requeues,
        "cpus": str(job.cpus_per_node or ""),
        "gpus": job.gpus_per_node,
    }
    # Two jobs on one node have other ports, unless their numbers differ by a multiple of so many.
    places = (LAST_PORT + 1 - FIRST_PORT) // PORTS
    return job.script(
        head,
        own,
        ports=f"$(({FIRST_PORT} + SLURM_JOB_ID % {places} * {PORTS}))",
        worker_ports=(0, 0),
        main="slurm.sh",
    )


class SshCluster(RayLaunch, frozen=True, kw_only=True):
    """Hosts that ssh reaches without a password, for a campaign."""

    hosts: tuple[str, ...]
    ports: int | None = None
    stop: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hosts or len(set(self.hosts)) < len(self.hosts):
            raise SpecError(f"`hosts` must be one or more, each once. Got {', '.join(self.hosts) or 'none'}")
        if here := {"localhost", "127.0.0.1"} & {host.rpartition("@")[2] for host in self.hosts}:
            raise SpecError(f"`hosts` must be others than this one, which is the head. Got {', '.join(here)}")
        if self.ports is not None and not 1024 <= self.ports <= 65536 - BLOCK:
            raise SpecError(f"`ports` must be from 1024 to {65536 - BLOCK}, the first of {BLOCK}. Got {self.ports}")


def ssh_script(cluster: SshCluster) -> str:
    """Return the script; with the argument `stop` it ends what an earlier run of it left."""
    folder = f".metalforge/cluster/{checked('name', 'name', cluster.name)}"
    hosts = [checked("host", "hosts", host) for host in cluster.hosts]
    # Without a port that was asked for, one by the name, so that two clusters are apart.
    first = cluster.ports or FIRST_PORT + crc32(cluster.name.encode()) % BLOCKS * BLOCK
    last = first + BLOCK - 1
    head = f"#!/bin/bash\n# This host and {len(hosts)} others; between them ports {first} to {last} are used.\n"
    own = {
        "what": [] if cluster.stop else campaign_words(cluster.spec, cluster.preset),
        "action": "stop" if cluster.stop else "start",
        "hosts": hosts,
        "folder": folder,
        "remote_token": _receive(folder, "token"),
        "remote_script": _receive(folder, "node.sh"),
        "remote_worker": f"bash {folder}/node.sh worker",
        "remote_stop": f"bash -c 'if [ -e {folder}/node.sh ]; then bash {folder}/node.sh stop; fi'",
        "remote_remove": f"rm -rf {folder}",
    }
    return cluster.script(head, own, ports=str(first), worker_ports=(first + PORTS, last), main="ssh.sh")


def _receive(folder: str, name: str) -> str:
    """Return the command that makes a file of what comes in, for whichever shell a host has.

    It is there whole or not at all: a home may be one folder for all hosts, where others read it meanwhile.
    """
    new = f"{folder}/new-{name}"
    return f"bash -c 'umask 077 && mkdir -p {folder} && cat >{new} && mv {new} {folder}/{name}'"


def _part(name: str) -> str:
    """Return a file of `scripts/`."""
    return (files(__package__ or "") / "scripts" / name).read_text(encoding="utf-8")


def _settings(values: Mapping[str, Setting]) -> str:
    """Return assignments; every value is quoted, and a sequence becomes an array."""
    return "".join(
        f"{name}={shlex.quote(str(value)) if isinstance(value, str | int) else f'({shlex.join(value)})'}\n"
        for name, value in values.items()
    )
