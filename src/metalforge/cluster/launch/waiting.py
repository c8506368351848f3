"""Waiting for the nodes of a cluster."""

import importlib
import logging
import os
import socket
import time
from typing import Any

from metalforge.cluster.address import ClusterAddress
from metalforge.core.errors import PlacementError, PluginError, SpecError

_AGAIN_S = 0.5


def wait_for_nodes(address: str, nodes: int, seconds: float, *, head_process: int | None = None) -> int:
    """Return how many nodes are alive: at once when there are that many, or those there are after so many seconds.

    Raises where no head answers by then, or where the process that runs it is gone before.
    """
    end = time.monotonic() + seconds
    ray = _joined(address, end, head_process)
    try:
        while True:
            alive = sum(bool(node["Alive"]) for node in ray.nodes())
            if alive >= nodes or time.monotonic() >= end:
                return alive
            time.sleep(_AGAIN_S)
    finally:
        ray.shutdown()


def _joined(address: str, end: float, head_process: int | None) -> Any:
    """Return Ray as a driver on the cluster."""
    head = ClusterAddress.parse(address)
    if head.kind != "head":
        raise SpecError(f"the address of a head must be HOST:PORT. Got {address}")
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise PluginError(f"a cluster needs Ray: {error}\nhint: pip install 'metalforge[ray]'") from error
    while not _answers(head.host, head.port):  # Ray itself would wait for 40 s before it looks again
        if time.monotonic() >= end or _gone(head_process):
            raise PlacementError(f"no head of a cluster answers at {address}\nhint: what did `ray start` say there?")
        time.sleep(_AGAIN_S)
    while True:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError) as error:  # its port is open before it is ready
            if time.monotonic() >= end:
                raise PlacementError(f"the head at {address} does not take this driver: {error}") from error
            time.sleep(_AGAIN_S)
        else:
            return ray


def _gone(process: int | None) -> bool:
    try:
        if process is not None:
            os.kill(process, 0)  # which only asks
    except ProcessLookupError:
        return True
    return False


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=2.0).close()
    except OSError:
        return False
    return True
