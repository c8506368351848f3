"""Strikes against a node of a cluster on this machine: a kill, a notice and then the end, a raylet that is silent."""

import signal
from pathlib import Path

from metalforge.cluster.local import ClusterFolder
from metalforge.cluster.marked import is_marked, kill_all, mark_of, marked, raylets, send, wait_until


def mark(cluster, number):
    return mark_of(ClusterFolder.of(cluster.folder).cluster, number)


def kill_node(cluster, number):
    """End a node and all that runs on it by SIGKILL, as a machine that is gone; with the head the cluster ends."""
    kill_all(mark(cluster, number))
    assert wait_until(lambda: all(node.number != number for node in cluster.nodes()), 30.0)


def remove_node(cluster, number, grace_s):
    """Take a node away as a preempted machine goes: SIGTERM to what runs there, so many seconds, then the end."""
    struck = mark(cluster, number)
    workers = [pid for pid in marked(struck) if b"\0RAY_JOB_ID=" in Path(f"/proc/{pid}/environ").read_bytes()]
    send(workers, struck, signal.SIGTERM)
    wait_until(lambda: not any(is_marked(pid, struck) for pid in workers), grace_s)
    send(raylets(struck), struck, signal.SIGTERM)  # they say goodbye to the head
    wait_until(lambda: not raylets(struck), 5.0)
    kill_node(cluster, number)


def signal_raylet(cluster, number, signalled):
    """Stop a node's raylet (SIGSTOP): it cannot be reached, its workers run on. SIGCONT ends the pause."""
    struck = mark(cluster, number)
    send(raylets(struck), struck, signalled)
