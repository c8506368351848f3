"""Campaigns on many machines: a Ray cluster's nodes as lanes, a supervisor that outlives the terminal."""

from typing import TYPE_CHECKING

from metalforge.core import on_demand

if TYPE_CHECKING:
    from .address import ClusterAddress
    from .joining import wait_for_nodes
    from .launch.kubernetes import KubernetesJob, kubernetes_manifest, yaml_documents
    from .launch.requirements import check_node, cluster_requirements
    from .launch.shell import SlurmJob, SshCluster, slurm_script, ssh_script
    from .local import LocalCluster, LocalClusterError, LocalNode, start_local
    from .nodes import live_nodes
    from .supervisor import Outcome

__all__ = ["ClusterAddress", "LocalCluster", "LocalClusterError", "LocalNode", "start_local"]
__getattr__, __dir__ = on_demand(__name__, __all__)
