"""How a process joins a cluster: one that is there, or one of its own on this machine, which it starts."""

import importlib
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from metalforge.core.errors import PlacementError, PluginError

from .address import ClusterAddress
from .local import LocalCluster, start_local
from .supervisor import NAMESPACE

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = "cluster"
"""Of a campaign's directory: where the nodes of a cluster on this machine are kept."""
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
    where = str(address)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if address.kind == "local":
        if find_spec("ray") is None:
            _ray()  # says what is missing before anything is started
        folder = directory / FOLDER
        cluster = LocalCluster.find(folder)
        if cluster is None and not start:
            raise PlacementError(
                f"{directory}: its cluster is gone\nhint: metalforge resume {directory} starts another"
            )
        cluster = cluster or start_local(address.nodes, address.cores, folder)
        os.environ |= cluster.environment()
        where = cluster.address
    ray = _ray()  # not before: it reads its environment when it is imported
    try:
        ray.init(address=where, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise PlacementError(
            f"no cluster could be joined at {address}: {str(error).strip().partition(chr(10))[0]}"
            "\nhint: `ray status` on its head says whether it runs; docs/guides/cluster.md how to start one"
        ) from error
    return ray


def leave(ray: "ModuleType", address: ClusterAddress, directory: Path, *, stop: bool) -> None:
    """Leave the cluster; one on this machine that nobody needs any more is stopped."""
    ray.shutdown()
    if stop and address.kind == "local" and (cluster := LocalCluster.find(directory / FOLDER)) is not None:
        cluster.stop()


def _ray() -> "ModuleType":
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise PluginError(f"a cluster needs Ray: {error}\nhint: pip install 'metalforge[ray]'") from error
