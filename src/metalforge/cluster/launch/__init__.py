"""What people submit: a batch script for Slurm, a manifest for KubeRay, a script for hosts that ssh reaches.

A record of what is wanted comes in, checked; text comes out. No secret is in it: tokens are made where it runs.
"""

from .kubernetes import KubernetesJob, kubernetes_manifest, yaml_documents
from .requirements import Requirement, check_node, cluster_requirements
from .shell import SlurmJob, SshCluster, slurm_script, ssh_script

__all__ = [
    "KubernetesJob",
    "Requirement",
    "SlurmJob",
    "SshCluster",
    "check_node",
    "cluster_requirements",
    "kubernetes_manifest",
    "slurm_script",
    "ssh_script",
    "yaml_documents",
]
