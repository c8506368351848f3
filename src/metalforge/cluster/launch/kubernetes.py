"""A manifest for KubeRay: a RayJob with its disk, its spec and a wall around its ports.

KubeRay makes the cluster, runs the campaign on its head and deletes the cluster when that ends. Where it failed or its
nodes were taken away it makes another one, on which the campaign goes on by its journal. A job is handed over through
the head's dashboard, which therefore runs: it wants the token, and only the operator and the cluster's pods reach it.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import msgspec

from metalforge.core import SpecError, require_at_least

from .checks import campaign_words, checked, printable
from .requirements import LEAST_RAY, numbers

Record = dict[str, Any]
DASHBOARD = 8265
_LABEL = "metalforge.io/campaign"
_DISK, _SPEC = "/campaign", "/spec"
_LARGEST_SPEC = 1_000_000
"""Bytes of a ConfigMap; Kubernetes refuses more than a MiB."""
_FORMS = {
    "image": "image",
    "ray_version": "version",
    **dict.fromkeys(("memory_per_worker", "head_memory", "storage"), "quantity"),
    **dict.fromkeys(("name", "namespace", "token_secret", "claim", "storage_class", "operator_namespace"), "name"),
    "out": "folder",  # of the disk, not of the pod: what lies elsewhere is lost with the pod
}
"""Which kind of word a field holds."""


class KubernetesJob(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of a Ray cluster on Kubernetes and the campaign that runs there."""

    image: str
    workers: int
    gpus_per_worker: int = 0
    cpus_per_worker: int = 4
    memory_per_worker: str = "16Gi"
    head_memory: str = "8Gi"
    spec: Path | None = None
    preset: str | None = None
    out: str = "run"
    name: str = "metalforge"
    namespace: str = "default"
    token_secret: str | None = None
    claim: str | None = None
    storage: str = "100Gi"
    storage_class: str | None = None
    operator_namespace: str | None = None
    ray_version: str = "2.60.0"
    grace_s: int = 120
    retries: int = 20
    node_selector: tuple[str, ...] | None = None
    tolerations: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        require_at_least(1, workers=self.workers, cpus_per_worker=self.cpus_per_worker)
        require_at_least(0, gpus_per_worker=self.gpus_per_worker, retries=self.retries)
        require_at_least(30, grace_s=self.grace_s)
        for option, kind in _FORMS.items():
            if (value := getattr(self, option)) is not None:
                checked(kind, option, value)
        if numbers(self.ray_version) < LEAST_RAY:
            raise SpecError(f"`ray-version` must be 2.52.0 or newer, the first with tokens. Got {self.ray_version}")
        if ".." in self.out.split("/"):
            raise SpecError(f"`out` must be a folder below the disk. Got {self.out}")

    @property
    def secret(self) -> str:
        """Return the name of the Secret that holds the token."""
        return self.token_secret or f"{self.name}-token"


def kubernetes_manifest(job: KubernetesJob) -> list[Record]:
    """Return the objects of the manifest, in the order in which they are to be made."""
    objects = [] if job.claim is not None else [_claim(job)]
    if job.spec is not None:
        objects.append(_object(job, "v1", "ConfigMap", f"{job.name}-spec", data={"spec.toml": _text(job.spec)}))
    return [*objects, _wall(job), _ray_job(job)]


def _object(job: KubernetesJob, api: str, kind: str, name: str, **rest: object) -> Record:
    meta = {"name": name, "namespace": job.namespace, "labels": {_LABEL: job.name}}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **rest}


def _text(path: Path) -> str:
    from metalforge.campaign import load_spec

    load_spec(path)  # a mistake in it is better said here than on the cluster
    text = path.read_text(encoding="utf-8")
    if len(text.encode()) > _LARGEST_SPEC:
        raise SpecError(f"{path}: a spec of at most {_LARGEST_SPEC} bytes is wanted. Got {len(text.encode())}")
    return text


def _claim(job: KubernetesJob) -> Record:
    spec: Record = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": job.storage}}}
    if job.storage_class is not None:
        spec["storageClassName"] = job.storage_class
    return _object(job, "v1", "PersistentVolumeClaim", f"{job.name}-disk", spec=spec)


def _wall(job: KubernetesJob) -> Record:
    """Return a policy by which the cluster's pods hear each other, and the operator on the dashboard's port alone."""
    own = {"podSelector": {"matchLabels": {_LABEL: job.name}}}
    where = job.operator_namespace and {"matchLabels": {"kubernetes.io/metadata.name": job.operator_namespace}}
    pods = {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}}
    operator = {"namespaceSelector": where or {}, "podSelector": pods}
    ingress = [{"from": [own]}, {"from": [operator], "ports": [{"protocol": "TCP", "port": DASHBOARD}]}]
    spec = {**own, "policyTypes": ["Ingress"], "ingress": ingress}
    return _object(job, "networking.k8s.io/v1", "NetworkPolicy", f"{job.name}-ray", spec=spec)


def _ray_job(job: KubernetesJob) -> Record:
    # The dashboard must listen on the pod's own address: the operator is another pod.
    head = {"num-cpus": "0", "dashboard-host": "0.0.0.0"}
    resources = {"cpu": str(job.cpus_per_worker), "memory": job.memory_per_worker}
    resources |= {"nvidia.com/gpu": str(job.gpus_per_worker)} if job.gpus_per_worker else {}
    workers = {"groupName": "workers", "replicas": job.workers, "minReplicas": job.workers, "maxReplicas": job.workers}
    cluster = {
        "rayVersion": job.ray_version,
        "authOptions": {"mode": "token", "secretName": job.secret},
        "headGroupSpec": {
            "serviceType": "ClusterIP",
            "enableIngress": False,
            "rayStartParams": head,
            "template": _pod(job, "ray-head", {"cpu": "2", "memory": job.head_memory}),
        },
        "workerGroupSpecs": [workers | {"rayStartParams": {}, "template": _pod(job, "ray-worker", resources)}],
    }
    spec = {
        "entrypoint": _entrypoint(job),
        "submissionMode": "HTTPMode",  # no third pod, which would need the token too
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 60,
        "backoffLimit": job.retries,
        "rayClusterSpec": cluster,
    }
    return _object(job, "ray.io/v1", "RayJob", job.name, spec=spec)


def _entrypoint(job: KubernetesJob) -> str:
    out = f"{_DISK}/{job.out}"
    what = campaign_words(Path(_SPEC, "spec.toml") if job.spec else None, job.preset)
    scan = shlex.join(["metalforge", "scan", *what, "--cluster", "auto", "--out", out])
    resume = shlex.join(["metalforge", "resume", out, "--cluster", "auto"])
    return shlex.join(["bash", "-c", f"if [ -e {out}/journal.jsonl ]; then exec {resume}; else exec {scan}; fi"])


def _pod(job: KubernetesJob, name: str, resources: Record) -> Record:
    disk = {"claimName": job.claim or f"{job.name}-disk"}
    volumes: list[Record] = [{"name": "disk", "persistentVolumeClaim": disk}]
    mounts: list[Record] = [{"name": "disk", "mountPath": _DISK}]
    if job.spec is not None:
        volumes.append({"name": "spec", "configMap": {"name": f"{job.name}-spec"}})
        mounts.append({"name": "spec", "mountPath": _SPEC, "readOnly": True})
    # A node that is taken away says so before: campaigns give it up with their chains saved, then Ray ends.
    environment = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": str(job.grace_s - 20)}
    container: Record = {
        "name": name,
        "image": job.image,
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "resources": {"requests": resources, "limits": resources},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": mounts,
    }
    if name == "ray-worker":
        leave = ["metalforge", "cluster", "leave", "--grace", str(job.grace_s - 25)]
        container["lifecycle"] = {"preStop": {"exec": {"command": leave}}}
    spec: Record = {
        "terminationGracePeriodSeconds": job.grace_s,
        # Ray's own images run as this user, who could not write on a new disk otherwise.
        "securityContext": {"fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"},
        "automountServiceAccountToken": False,  # who runs code here shall not run Kubernetes
        "containers": [container],
        "volumes": volumes,
    }
    if name == "ray-worker" and job.node_selector:
        spec["nodeSelector"] = dict(_pair("node-selector", text) for text in job.node_selector)
    if name == "ray-worker" and job.tolerations:
        spec["tolerations"] = [
            {"key": checked("key", "toleration", key), "operator": "Exists"} for key in job.tolerations
        ]
    return {"metadata": {"labels": {_LABEL: job.name}}, "spec": spec}


def _pair(option: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise SpecError(f"`{option}` must be KEY=VALUE. Got `{printable(option, text)}`")
    return checked("key", option, key), checked("value", option, value)


# -- YAML: scalars as JSON writes them, so that none is misread ---------------------------------------------------

_TAKEN = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
"""Words that are no strings for some reader of YAML."""


def yaml_documents(documents: list[dict[str, Any]], comment: str = "") -> str:
    """Return documents one after the other, below a comment."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return head + "".join("---\n" + "\n".join(_lines(document)) + "\n" for document in documents)


def _lines(value: Any) -> list[str]:
    """Return the lines of a value; what a record or a list holds stands below it, moved to the right."""
    if isinstance(value, dict) and value:
        return [line for key, inner in value.items() for line in _below(f"{_scalar(key)}:", inner)]
    if isinstance(value, list) and value:
        return [("  " if i else "- ") + line for inner in value for i, line in enumerate(_lines(inner))]
    return [_scalar(value)]


def _below(key: str, value: Any) -> list[str]:
    lines = _lines(value)
    if isinstance(value, dict | list) and value:
        return [key, *(f"  {line}" for line in lines)]
    return [f"{key} {lines[0]}"]


def _scalar(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch("[A-Za-z][A-Za-z-]*", value) and value.lower() not in _TAKEN:
        return value  # a word, which is easier to read without quotes
    text = json.dumps(value, ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", lambda found: f"\\u{ord(found[0]):04x}", text)
