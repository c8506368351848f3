"""Processes of a cluster on this machine, found by a mark in their environment, which every child inherits.

Neither a process's number (which is given again) nor its parents (which may be gone) say whose it is; the mark does,
also when the one who started it was killed. A process of node 2 of the cluster `3f..` has the mark `3f..:2`.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from metalforge.core import MetalforgeError

VARIABLE = "METALFORGE_LOCAL_CLUSTER"
KEEPER = "keeper"
RAYLET = "raylet"
_GONE_S = 20.0  # to die after SIGKILL; only a process in an uninterruptible call takes longer


def mark_of(cluster: str, place: int | str) -> str:
    """Return the mark of a node's processes, or of the keeper."""
    return f"{cluster}:{place}"


def marking(cluster: str, place: int | str) -> dict[str, str]:
    """Return the environment that marks a process and what it starts.

    Ray writes titles of processes (`ray::IDLE`) over the environment that others see, unless it is told not to.
    """
    return {VARIABLE: mark_of(cluster, place), "SPT_NOENV": "1"}


def _environment(pid: int) -> list[bytes]:
    # Empty for a process that has ended and was not waited for, so that it counts as gone.
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, or another user's
        return []


def is_marked(pid: int, mark: str) -> bool:
    """Whether this process lives and has the mark; one that ends in a colon is that of the whole cluster."""
    wanted = f"{VARIABLE}={mark}".encode()
    return any(entry.startswith(wanted) if mark.endswith(":") else entry == wanted for entry in _environment(pid))


def marked(mark: str) -> Iterator[int]:
    """Give the numbers of all processes with this mark, but this one's own."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid() and is_marked(int(entry), mark):
            yield int(entry)


def raylets(mark: str) -> list[int]:
    """Give the raylet of a node, or those of a cluster."""
    found = []
    for pid in marked(mark):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == RAYLET:
                found.append(pid)
    return found


def send(pids: Iterable[int], mark: str, signalled: signal.Signals) -> None:
    """Signal those of some processes that still are the ones that have the mark."""
    for pid in pids:
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)  # from here on the number cannot become another process's
            try:
                if is_marked(pid, mark):
                    signal.pidfd_send_signal(handle, signalled)
            finally:
                os.close(handle)


def wait_until(met: Callable[[], bool], seconds: float, every: float = 0.02) -> bool:
    """Wait until this is so, at most so many seconds, with a look every so often; returns whether it is."""
    until = time.monotonic() + seconds
    while not (done := met()) and time.monotonic() < until:
        time.sleep(every)
    return done


def kill_all(mark: str) -> None:
    """End all processes with this mark now, and those that they start meanwhile; returns when none is left.

    As a machine goes that loses its power: raylets stand still from the first moment and go last, so that none of them
    can start another worker, and nobody is left who could tell the head of a death.
    """
    still = raylets(mark)
    send(still, mark, signal.SIGSTOP)
    for spared in (still, []):

        def gone(spared: list[int] = spared) -> bool:
            left = [pid for pid in marked(mark) if pid not in spared]
            send(left, mark, signal.SIGKILL)
            return not left

        if not wait_until(gone, _GONE_S):
            raise MetalforgeError(f"processes {list(marked(mark))} did not end within {_GONE_S:g} s after SIGKILL")
