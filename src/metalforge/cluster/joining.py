"""How a process joins a cluster: one that is there, or one of its own on this machine, which it starts."""

import importlib
import logging
import os
import socket
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from metalforge.core import PlacementError, SpecError
from metalforge.pipeline import first_line, import_ray

from .address import ClusterAddress
from .local import LocalCluster, start_local

if TYPE_CHECKING:
    from types import ModuleType

NAMESPACE = "metalforge"
"""Of the actors of campaigns."""
FOLDER = "cluster"
"""Folder, in a campaign's directory, with the files of a cluster on this machine."""
CONNECT_S = 5.0
"""Seconds that the head of a cluster may take to accept a connection."""
AGAIN_S = 0.5
"""Between two looks for nodes that are waited for."""
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def join(address: ClusterAddress, directory: Path, *, start: bool = True) -> "ModuleType":
    """Join a cluster and return Ray; one on this machine is started where it does not run yet, unless not wanted.

    Raises
    ------
    PluginError
        Ray is not installed.
    PlacementError
        There is no cluster at the address, or it does not let us in.
    """
    where, started = str(address), None
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if address.kind == "local":
        folder = directory / FOLDER
        cluster = LocalCluster.find(folder)
        if cluster is None and not start:
            raise PlacementError(
                f"{directory}: its cluster is gone\nhint: metalforge resume {directory} starts another"
            )
        if cluster is None:
            cluster = started = start_local(address.nodes, address.cores, folder)
        os.environ |= cluster.environment()
        where = cluster.address
    ray = import_ray()  # not before: it reads its environment when it is imported
    if address.kind != "local":
        where = str(_reachable(ray, address))
    try:
        ray.init(address=where, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        if started is not None:
            started.stop()  # no other process uses it
        raise _cannot_join(address, error) from error
    return ray


def _reachable(ray: "ModuleType", address: ClusterAddress) -> ClusterAddress:
    """Return the address of a cluster that accepts this process; Ray itself would try for 40 s before it raises."""
    if address.kind == "auto":
        services = importlib.import_module("ray._private.services")
        address = choose(
            os.environ.get("RAY_ADDRESS", ""), services.find_bootstrap_address(None), services.find_gcs_addresses()
        )
    try:
        socket.create_connection((address.host.strip("[]"), address.port), timeout=CONNECT_S).close()
        if address.kind == "head":
            head = importlib.import_module("ray._raylet").GcsClient(address=str(address))
            head.internal_kv_keys(b"", None)
    except ray.exceptions.AuthenticationError as error:
        raise PlacementError(
            f"the cluster at {address} does not take this token, or wants one"
            "\nhint: RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH, a file with the token that its head was started with"
        ) from error
    except (OSError, ray.exceptions.RayError) as error:
        raise _cannot_join(address, error) from error
    return address


def choose(told: str, latest: str | None, running: Collection[str]) -> ClusterAddress:
    """Return the cluster that `auto` means: the one that RAY_ADDRESS names, else the one that this machine belongs to.

    `running` are the heads that processes of this machine belong to, `latest` the one of the last `ray start` here;
    where several run and it is none of them, the choice is ambiguous and refused.
    """
    if told and told != "auto":
        try:
            found = ClusterAddress.parse(told)
        except SpecError:
            found = ClusterAddress("auto")
        if found.kind in ("client", "head"):
            return found
        raise PlacementError(
            f"RAY_ADDRESS must be HOST:PORT or ray://HOST:PORT. Got {told!r}\nhint: or unset it, or use --cluster"
        )
    if latest and (latest in running or not running):
        return ClusterAddress.parse(latest)
    match sorted(running):
        case [only]:
            return ClusterAddress.parse(only)
        case []:
            raise PlacementError(
                "there is no cluster to be found: RAY_ADDRESS is not set, and this machine belongs to none"
                "\nhint: --cluster local:3x2 starts one here; docs/guides/cluster.md says how to start one of machines"
            )
        case several:
            raise PlacementError(
                f"this machine belongs to {len(several)} clusters: {', '.join(several)}\nhint: --cluster {several[0]}"
            )


def _cannot_join(address: ClusterAddress, error: Exception) -> PlacementError:
    said = (error.strerror if isinstance(error, OSError) else "") or str(error)
    return PlacementError(
        f"no cluster could be joined at {address}: {first_line(said)}"
        "\nhint: `ray status` on its head says whether it runs; docs/guides/cluster.md how to start one"
    )


def leave(ray: "ModuleType", address: ClusterAddress, directory: Path, *, stop: bool) -> None:
    """Leave the cluster; with `stop`, one that was started on this machine ends."""
    ray.shutdown()
    if stop and address.kind == "local" and (cluster := LocalCluster.find(directory / FOLDER)) is not None:
        cluster.stop()


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
        time.sleep(AGAIN_S)
    try:
        while (alive := sum(bool(node["Alive"]) for node in ray.nodes())) < nodes and time.monotonic() < end:
            time.sleep(AGAIN_S)
        return alive
    finally:
        ray.shutdown()


def _joins(ray: "ModuleType", head: ClusterAddress) -> bool:
    """Whether this process could join as a driver; the port of a head is open before it is ready."""
    try:
        # Ray itself would try for 40 s.
        socket.create_connection((head.host.strip("[]"), head.port), timeout=2.0).close()
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
