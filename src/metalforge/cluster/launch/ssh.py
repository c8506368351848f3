"""A script for plain hosts: the head of a Ray cluster here, its workers by ssh, the campaign on that."""

from zlib import crc32

from metalforge.core import SpecError

from .checks import campaign_words, checked
from .shell import PORTS, RayLaunch

FIRST_PORT, BLOCK, BLOCKS = 20000, 1000, 12
"""Ports of a cluster: a block of a thousand, so that a firewall can let just these through between the hosts."""


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
