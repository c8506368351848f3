"""Campaigns on many machines: a Ray cluster's nodes as lanes, a supervisor that outlives the terminal."""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

if TYPE_CHECKING:
    from .address import ClusterAddress
    from .joining import wait_for_nodes
    from .launch import (
        KubernetesJob,
        SlurmJob,
        SshCluster,
        check_node,
        kubernetes_manifest,
        slurm_script,
        ssh_script,
        yaml_documents,
    )
    from .launch.requirements import cluster_requirements
    from .local import LocalCluster, LocalClusterError, LocalNode, start_local
    from .nodes import live_nodes
    from .supervisor import Outcome

__all__ = ["ClusterAddress", "LocalCluster", "LocalClusterError", "LocalNode", "start_local"]
__getattr__, __dir__ = on_demand(__name__, __all__)
