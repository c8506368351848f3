"""Waiting for the nodes of a cluster."""

import logging
import os
import socket
import time
from typing import TYPE_CHECKING

from metalforge.cluster.address import ClusterAddress
from metalforge.core import PlacementError, SpecError
from metalforge.pipeline import import_ray

if TYPE_CHECKING:
    from types import ModuleType

_AGAIN_S = 0.5


def wait_for_nodes(address: str, nodes: int, seconds: float, *, head_process: int | None = None) -> int:
    """Return how many nodes are alive: at once when there are that many, or those there are after so many seconds.

    Raises where no head answers by then, or where the process that runs it is gone before.
    """
    head, end = ClusterAddress.parse(address), time.monotonic() + seconds
    if head.kind != "head":
        raise SpecError(f"the address of a head must be HOST:PORT. Got {address}")
    ray = import_ray()
    while not _joins(ray, head):
        if time.monotonic() >= end or _gone(head_process):
            raise PlacementError(f"no head of a cluster answers at {address}\nhint: what did `ray start` say there?")
        time.sleep(_AGAIN_S)
    try:
        while True:
            alive = sum(bool(node["Alive"]) for node in ray.nodes())
            if alive >= nodes or time.monotonic() >= end:
                return alive
            time.sleep(_AGAIN_S)
    finally:
        ray.shutdown()


def _joins(ray: "ModuleType", head: ClusterAddress) -> bool:
    """Whether this process could join as a driver; the port of a head is open before it is ready."""
    try:
        socket.create_connection((head.host, head.port), timeout=2.0).close()  # Ray itself would try for 40 s
        ray.init(address=str(head), log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError):
        return False
    return True


def _gone(process: int | None) -> bool:
    try:
        if process is not None:
            os.kill(process, 0)  # which only asks
    except ProcessLookupError:
        return True
    return False
