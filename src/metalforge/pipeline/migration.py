"""Moving a stage's state from one substrate to another at an item border, while the rest of the graph runs."""

import hashlib
from typing import TYPE_CHECKING

import msgspec

from .errors import PipelineError
from .graph import StageSpec

if TYPE_CHECKING:
    from .supervisor import Run
    from .worker import StageWorker

__all__ = ["Migration", "swap_host"]


class Migration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A move that was made: from where to where, how many bytes, and their SHA-256 on both sides."""

    stage: str
    source: str | None
    target: str | None
    state_bytes: int
    sha256: str
    pause_ms: float


def swap_host(run: "Run", worker: "StageWorker", spec: StageSpec) -> Migration:
    """Give a worker that stands at a border a new host with the same state; the old one comes back if that fails."""
    began = run.clock_ns()
    old_host, old_spec = worker.host, worker.spec
    where = old_spec.substrate_name, spec.substrate_name
    stays = old_spec.substrate == spec.substrate and old_spec.config.isolation == spec.config.isolation
    if stays or not worker.opened:
        worker.spec, worker.config, worker.host = spec, spec.config, old_host if stays else run.make_host(spec)
        worker.host.spec = spec
        return Migration(stage=worker.name, source=where[0], target=where[1], state_bytes=0, sha256="", pause_ms=0.0)
    saved = old_host.checkpoint()
    digest = hashlib.sha256(saved).hexdigest()
    way = {"source": where[0], "target": where[1], "sha256": digest}
    run.note("migration.left", worker.name, **way)
    old_host.close()
    try:
        host = run.make_host(spec)
        host.open(saved)
        arrived = host.checkpoint()
        if arrived != saved:
            host.close()
            raise PipelineError(
                f"the state of stage `{worker.name}` changed on its way from {where[0]} to {where[1]}: "
                f"sha256 {digest} became {hashlib.sha256(arrived).hexdigest()}; it stays where it was"
            )
    except Exception:
        old_host.open(saved)
        raise
    worker.spec, worker.config, worker.host = spec, spec.config, host
    worker.throttle = run.readings.throttle_of(worker)
    run.note("migration.arrived", worker.name, **way)
    return Migration(
        stage=worker.name,
        source=where[0],
        target=where[1],
        state_bytes=len(saved),
        sha256=digest,
        pause_ms=(run.clock_ns() - began) * 1e-6,
    )
