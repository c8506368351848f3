"""A batch script for Slurm: Ray on the nodes of a job, the campaign on that, and the same job again after its limit."""

from metalforge.core import SpecError, require_at_least

from .checks import campaign_words, checked, slurm_seconds
from .shell import PORTS, RayLaunch, Setting

FIRST_PORT, LAST_PORT = 20000, 32767
"""Above the ports of known services and below those that Linux gives to clients."""


class SlurmJob(RayLaunch, frozen=True, kw_only=True):
    """What is asked of Slurm for a campaign."""

    nodes: int
    time: str
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    memory: str | None = None
    notice_s: int = 120
    requeues: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, nodes=self.nodes)
        require_at_least(0, requeues=self.requeues)
        require_at_least(30, notice_s=self.notice_s)
        if slurm_seconds("time", self.time) < 2 * self.notice_s:
            raise SpecError(
                f"`time` must be at least twice the notice of {self.notice_s} s, in which chains are saved. "
                f"Got `{self.time}`\nhint: --time 12:00:00, or a shorter --notice"
            )


def slurm_script(job: SlurmJob) -> str:
    """Return the script for `sbatch`."""
    asked: dict[str, object] = {
        "job-name": job.name,
        "nodes": job.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": job.cpus_per_node,
        "gpus-per-node": job.gpus_per_node or None,
        "mem": "0" if job.memory is None and job.cpus_per_node is None else job.memory,  # 0: all that the node has
        "time": job.time,
        "partition": job.partition,
        "account": job.account,
        "qos": job.qos,
        "constraint": job.constraint,
        "reservation": job.reservation,
        "signal": f"B:TERM@{job.notice_s}",
        "open-mode": "append",
    }
    lines = [f"--{key}={checked('word', key, str(value))}" for key, value in asked.items() if value is not None]
    lines += ["--requeue", "--no-kill"] + ["--exclusive"] * (job.cpus_per_node is None)
    head = "#!/bin/bash\n" + "".join(f"#SBATCH {line}\n" for line in lines)
    own: dict[str, Setting] = {
        "what": campaign_words(job.spec, job.preset),
        "requeues": job.requeues,
        "cpus": str(job.cpus_per_node or ""),
        "gpus": job.gpus_per_node,
    }
    # Two jobs on one node have other ports, unless their numbers differ by a multiple of so many.
    places = (LAST_PORT + 1 - FIRST_PORT) // PORTS
    return job.script(
        head,
        own,
        ports=f"$(({FIRST_PORT} + SLURM_JOB_ID % {places} * {PORTS}))",
        worker_ports=(0, 0),
        main="slurm.sh",
    )
