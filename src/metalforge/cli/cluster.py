"""`cluster slurm | kubernetes | ssh | check | wait`: what is submitted to run a campaign on many machines."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from .far import leave
from .output import Json, print_json, print_text

app = typer.Typer(help="Scripts that run a campaign on many machines.", no_args_is_help=True, rich_markup_mode=None)
Spec = Annotated[Path | None, typer.Option(help="The campaign's spec in TOML, or --preset.")]
Preset = Annotated[str | None, typer.Option(help="A preset instead of a spec.")]
Out = Annotated[Path, typer.Option(help="The campaign's directory; where it has a journal the campaign goes on.")]
Name = Annotated[str, typer.Option(help="Two that run at a time have two names.")]
Gpus = Annotated[int, typer.Option(help="Cards of each node.")]
Cpus = Annotated[int | None, typer.Option(help="Cores of each node; all without.")]
Activate = Annotated[Path | None, typer.Option(help="A file that nodes source first, as .venv/bin/activate.")]
Interface = Annotated[str | None, typer.Option(help="The private network's interface, as ib0; found without.")]
Public = Annotated[
    bool, typer.Option("--allow-public-address", help="Use a public address: a firewall closes its ports.")
]
Client = Annotated[bool, typer.Option("--client", help="A port for ray:// addresses as well.")]
Patience = Annotated[int, typer.Option("--patience", help="Seconds to wait for nodes; then those that came begin.")]

Launch = TypeVar("Launch", bound=msgspec.Struct)


def _made(kind: type[Launch], options: Mapping[str, Any]) -> Launch:
    """Return the record of a verb's options, which have the names of its fields."""
    asked = {name: options[name] for name in kind.__struct_fields__ if name in options}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in asked.items()})


@app.command()
def slurm(
    nodes: Annotated[int, typer.Option(help="Nodes of the job.")],
    time: Annotated[str, typer.Option(help="Limit of one run, HH:MM:SS or DAYS-HH:MM:SS.")],
    gpus_per_node: Gpus = 0,
    cpus_per_node: Cpus = None,
    spec: Spec = None,
    preset: Preset = None,
    out: Out = Path("campaign"),
    name: Name = "metalforge",
    partition: Annotated[str | None, typer.Option(help="Slurm's --partition.")] = None,
    account: Annotated[str | None, typer.Option(help="Slurm's --account.")] = None,
    qos: Annotated[str | None, typer.Option(help="Slurm's --qos.")] = None,
    constraint: Annotated[str | None, typer.Option(help="Slurm's --constraint.")] = None,
    reservation: Annotated[str | None, typer.Option(help="Slurm's --reservation.")] = None,
    memory: Annotated[str | None, typer.Option(help="Slurm's --mem, for each node.")] = None,
    notice_s: Annotated[
        int, typer.Option("--notice", help="Seconds before the limit at which chains are saved.")
    ] = 120,
    requeues: Annotated[int, typer.Option(help="How often the job queues again after its limit.")] = 100,
    activate: Activate = None,
    interface: Interface = None,
    allow_public_address: Public = False,
    client: Client = False,
    patience_s: Patience = 600,
) -> None:
    """Write the batch script that starts Ray on the nodes and the campaign on that, and goes on after the limit.

    metalforge cluster slurm --nodes 8 --gpus-per-node 4 --time 12:00:00 --spec spec.toml > job.sh; sbatch job.sh
    """
    from metalforge.cluster import SlurmJob, slurm_script

    print_text(slurm_script(_made(SlurmJob, locals())).rstrip("\n"))


@app.command()
def kubernetes(
    image: Annotated[str, typer.Option(help="An image with metalforge[ray] and ray[default].")],
    workers: Annotated[int, typer.Option(help="Pods that run chains.")],
    gpus_per_worker: Annotated[int, typer.Option(help="Cards of each.")] = 0,
    cpus_per_worker: Annotated[int, typer.Option(help="Cores of each.")] = 4,
    memory_per_worker: Annotated[str, typer.Option(help="Memory of each.")] = "16Gi",
    head_memory: Annotated[str, typer.Option(help="Memory of the head, which runs no chains.")] = "8Gi",
    spec: Spec = None,
    preset: Preset = None,
    out: Annotated[str, typer.Option(help="The campaign's directory on the disk that all pods share.")] = "run",
    name: Name = "metalforge",
    namespace: Annotated[str, typer.Option(help="The namespace of all of it.")] = "default",
    token_secret: Annotated[str | None, typer.Option(help="The Secret with the token; NAME-token without.")] = None,
    claim: Annotated[str | None, typer.Option(help="A PersistentVolumeClaim that is there already.")] = None,
    storage: Annotated[str, typer.Option(help="Size of a new one.")] = "100Gi",
    storage_class: Annotated[str | None, typer.Option(help="Its class; it must be shared by pods.")] = None,
    operator_namespace: Annotated[str | None, typer.Option(help="Where KubeRay's operator is; any without.")] = None,
    ray_version: Annotated[str, typer.Option(help="Ray's version in the image.")] = "2.60.0",
    grace_s: Annotated[int, typer.Option("--grace", help="Seconds that a pod has to save its chains.")] = 120,
    retries: Annotated[int, typer.Option(help="How often a cluster that failed is made anew.")] = 20,
    node_selector: Annotated[list[str] | None, typer.Option(help="KEY=VALUE of nodes for workers.")] = None,
    tolerations: Annotated[
        list[str] | None, typer.Option("--toleration", help="Key of a taint, as of spot nodes.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the KubeRay manifest (RayJob, disk, spec, network policy); --json writes one List of the same objects."""
    from metalforge.cluster import KubernetesJob, kubernetes_manifest, yaml_documents

    job = _made(KubernetesJob, locals())
    objects = kubernetes_manifest(job)
    if as_json:
        print_json({"apiVersion": "v1", "kind": "List", "items": objects})
        return
    comment = (
        "The token, once; it is on no command line:\n"
        f"  openssl rand -hex 32 | tr -d '\\n' | kubectl create secret generic {job.secret} "
        f"--namespace {job.namespace} --from-file=auth_token=/dev/stdin\n"
        "KubeRay 1.6 or newer, and a network plug-in that enforces NetworkPolicy, are needed. Then:\n"
        "  kubectl apply -f THIS_FILE"
    )
    print_text(yaml_documents(objects, comment).rstrip("\n"))


@app.command()
def ssh(
    hosts: Annotated[list[str], typer.Argument(help="HOST or USER@HOST of each worker; the head is this host.")],
    spec: Spec = None,
    preset: Preset = None,
    out: Out = Path("campaign"),
    name: Name = "metalforge",
    gpus_per_node: Gpus = 0,
    cpus_per_node: Cpus = None,
    ports: Annotated[int | None, typer.Option(help="The first of 1000 ports; one by the name without.")] = None,
    activate: Activate = None,
    interface: Interface = None,
    allow_public_address: Public = False,
    client: Client = False,
    patience_s: Patience = 300,
    run: Annotated[bool, typer.Option("--run", help="Run the script instead of writing it.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="End what an earlier run left on the hosts.")] = False,
) -> None:
    """Write (or --run) the script that starts Ray here and on hosts by ssh, the campaign on that, and ends it all."""
    from metalforge.cluster import SshCluster, ssh_script

    text = ssh_script(_made(SshCluster, locals()))
    if not run:
        print_text(text.rstrip("\n"))
        return
    sys.stdout.flush()
    os.execvp("bash", ["bash", "-c", text, "metalforge-cluster"])  # signals are the script's own from here


@app.command()
def check() -> None:
    """Say which Ray is here; fail where this machine must not join a cluster: no token, or a Ray that knows none."""
    from metalforge.cluster import check_node

    print_text(check_node())


@app.command()
def wait(
    address: Annotated[str, typer.Argument(help="HOST:PORT of the head.")],
    nodes: Annotated[int, typer.Option(min=1, help="How many nodes are expected.")] = 1,
    seconds: Annotated[float, typer.Option(min=0.0, help="When those that came are enough.")] = 600.0,
    head_process: Annotated[int | None, typer.Option(min=1, help="Give up when this process is gone.")] = None,
) -> None:
    """Wait until a cluster has so many nodes; say so where fewer came in time, which is no failure."""
    from metalforge.cluster import wait_for_nodes

    came = wait_for_nodes(address, nodes, seconds, head_process=head_process)
    said = f"{came} of {nodes} nodes came; the others get work when they come"
    sys.stderr.write(f"{said}\n" if came < nodes else f"{came} nodes\n")


app.command()(leave)
