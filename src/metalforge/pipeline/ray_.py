"""The same graph with its stages on a Ray cluster: one actor a stage, placed by resources.

Queues, credits, order, checkpoints and replay stay ours, in the process that starts the run: Ray restarts processes,
never state, and with its own retries calls come twice. An actor that dies is started again from the last checkpoint
and replays what it had not acknowledged, exactly as a local process does (`processes.ProcessHost`). Payloads pass
through the starting process, one item at a time for each stage: made for stages of milliseconds and more. The library
is imported here only.
"""

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from metalforge.core.errors import PluginError

from .errors import PipelineError
from .graph import PipelineGraph, StageSpec
from .hosts import Host, StageServer
from .processes import Died, ProcessHost
from .stages import Collect
from .threads import ThreadsRun

if TYPE_CHECKING:
    from types import ModuleType

_OPTIONS = {"num_cpus": 0.1, "max_restarts": 0, "max_task_retries": 0, "max_concurrency": 1}
"""A tenth of a core, so that a small machine holds many stages: three of a whole core on two cores wait for ever."""


_START_S = 60.0  # a worker process imports the package; a cluster that grows by itself may need more: `start_s`
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""With 0 Ray's servers listen on 127.0.0.1 only, on Linux too; read when Ray is imported."""


def _ray() -> "ModuleType":
    os.environ.setdefault(_LOOPBACK, "0")
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise PluginError(f"the Ray runtime needs ray: {error}\nhint: pip install 'metalforge[ray]'") from error


class RayActor:
    """One actor as a connection of a `ProcessHost`."""

    def __init__(self, spec: StageSpec, options: Mapping[str, Any], start_s: float = _START_S) -> None:
        self._ray, self._name, self._start_s = _ray(), spec.name, start_s
        self._options = {**_OPTIONS, **options}
        self._actor = self._ray.remote(StageServer).options(**self._options).remote()
        self.pid: int | None = None  # until it is opened: 0 would mean the caller's own group to `os.kill`

    def request(self, verb: str, arguments: tuple[Any, ...], timeout_s: float | None) -> Any:
        """Ask the actor and wait; what the stage raised is raised here."""
        errors = self._ray.exceptions
        if verb == "open":
            self._wait_for_a_place()
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

    def _wait_for_a_place(self) -> None:
        """Return when the actor runs somewhere; raises, with what is missing, when it found no place in time."""
        try:
            self._ray.get(self._actor.__ray_ready__.remote(), timeout=self._start_s)
        except self._ray.exceptions.GetTimeoutError as late:
            wanted = {"CPU": self._options["num_cpus"], "GPU": self._options.get("num_gpus", 0)}
            wanted |= self._options.get("resources", {})
            there, free = self._ray.cluster_resources(), self._ray.available_resources()
            lacks = [
                f"{amount:g} {name} of which the cluster has {there.get(name, 0):g} ({free.get(name, 0):g} free)"
                for name, amount in wanted.items()
                if amount > free.get(name, 0)
            ]
            nodes = self._ray.nodes()
            raise PipelineError(
                f"stage `{self._name}` found no place on Ray within {self._start_s:g} s: "
                + (f"it wants {', '.join(lacks)}" if lacks else "what it wants is there, but its worker did not start")
                + f"; {sum(node['Alive'] for node in nodes)} of {len(nodes)} nodes are alive\n"
                "hint: `resources` says what a stage wants, `start_s` how long it may wait for it"
            ) from late

    def kill(self) -> None:
        """End the actor now."""
        self._ray.kill(self._actor)

    def close(self) -> None:
        """End the actor."""
        self.kill()


class RayRun(ThreadsRun):
    """A run whose stages are actors. `resources` maps stages to actor options (`num_gpus`, `resources`, ...).

    Stages that collect for the caller (`Collect`) stay here. A cluster that is already joined is used; else Ray starts
    on this machine, without its dashboard, and is shut down at the end. It then listens on the loopback interface only,
    unless Ray was imported before or RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=1 asks for more. An actor that finds no place
    within `start_s` seconds (its resources are nowhere, or were on a node that is lost) fails the run.
    """

    def __init__(
        self,
        graph: PipelineGraph,
        *,
        resources: Mapping[str, Mapping[str, Any]] | None = None,
        start_s: float = _START_S,
        **options: Any,
    ) -> None:
        self._ray = _ray()
        self._resources, self._start_s = resources or {}, start_s
        self._ours = not self._ray.is_initialized()
        if self._ours:
            self._ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
        super().__init__(graph, **options)

    def make_host(self, spec: StageSpec) -> Host:
        """Return an actor for a stage; a sink that the caller reads stays in this process."""
        if isinstance(spec.stage, Collect):
            return super().make_host(spec)
        return ProcessHost(spec, lambda spec: RayActor(spec, self._resources.get(spec.name, {}), self._start_s))

    def _release(self) -> None:
        super()._release()
        if self._ours and self._ray.is_initialized():
            self._ray.shutdown()
