"""The same graph with its stages on a Ray cluster: one actor a stage, placed by resources.

Queues, credits, order, checkpoints and replay stay ours, in the process that starts the run: Ray restarts processes,
never state, and with its own retries calls come twice. An actor that dies is started again from the last checkpoint
and replays what it had not acknowledged, exactly as a local process does (`processes.ProcessHost`). Payloads pass
through the starting process, one item at a time for each stage: made for stages of milliseconds and more. The library
is imported here only.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from metalforge.core.errors import PluginError

from .graph import PipelineGraph, StageSpec
from .hosts import Host, StageServer
from .processes import Died, ProcessHost
from .stages import Collect
from .threads import ThreadsRun

if TYPE_CHECKING:
    from types import ModuleType

_OPTIONS = {"num_cpus": 0.1, "max_restarts": 0, "max_task_retries": 0, "max_concurrency": 1}
"""A tenth of a core, so that a small machine holds many stages: three of a whole core on two cores wait for ever."""


def _ray() -> "ModuleType":
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise PluginError(f"the Ray runtime needs ray: {error}\nhint: pip install 'metalforge[ray]'") from error


class RayActor:
    """One actor as a connection of a `ProcessHost`."""

    def __init__(self, spec: StageSpec, options: Mapping[str, Any]) -> None:
        self._ray = _ray()
        self._actor = self._ray.remote(StageServer).options(**{**_OPTIONS, **options}).remote()
        self.pid: int | None = None  # until it is opened: 0 would mean the caller's own group to `os.kill`

    def request(self, verb: str, arguments: tuple[Any, ...], timeout_s: float | None) -> Any:
        """Ask the actor and wait; what the stage raised is raised here."""
        errors = self._ray.exceptions
        try:
            result = self._ray.get(self._actor.do.remote(verb, arguments), timeout=timeout_s)
        except errors.GetTimeoutError as late:
            raise TimeoutError(str(late)) from late
        except errors.RayActorError as death:
            raise Died(str(death)) from death
        except errors.RayTaskError as error:
            raise error.cause if isinstance(getattr(error, "cause", None), Exception) else error from None
        if verb == "open":
            self.pid = int(result)
        return result

    def kill(self) -> None:
        """End the actor now."""
        self._ray.kill(self._actor)

    def close(self) -> None:
        """End the actor."""
        self.kill()


class RayRun(ThreadsRun):
    """A run whose stages are actors. `resources` maps stages to actor options (`num_gpus`, `resources`, ...).

    Stages that collect for the caller (`Collect`) stay here. A cluster that is already joined is used; else Ray starts
    on this machine, without its dashboard, and is shut down at the end.
    """

    def __init__(
        self, graph: PipelineGraph, *, resources: Mapping[str, Mapping[str, Any]] | None = None, **options: Any
    ) -> None:
        self._ray = _ray()
        self._resources = resources or {}
        self._ours = not self._ray.is_initialized()
        if self._ours:
            self._ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
        super().__init__(graph, **options)

    def make_host(self, spec: StageSpec) -> Host:
        """Return an actor for a stage; a sink that the caller reads stays in this process."""
        if isinstance(spec.stage, Collect):
            return super().make_host(spec)
        return ProcessHost(spec, lambda spec: RayActor(spec, self._resources.get(spec.name, {})))

    def _release(self) -> None:
        super()._release()
        if self._ours and self._ray.is_initialized():
            self._ray.shutdown()
