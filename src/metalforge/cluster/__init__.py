"""Campaigns on many machines: a Ray cluster's nodes as lanes, a supervisor that outlives the terminal."""

from typing import TYPE_CHECKING

from metalforge.core.on_demand import on_demand

if TYPE_CHECKING:
    from .address import ClusterAddress
    from .local import LocalCluster, LocalClusterError, LocalNode, start_local

__all__ = ["ClusterAddress", "LocalCluster", "LocalClusterError", "LocalNode", "start_local"]
__getattr__, __dir__ = on_demand(__name__, __all__)
