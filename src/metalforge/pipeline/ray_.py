"""Stages on a Ray cluster: actors, the connections of stages to them, and the runtime that places one actor a stage.

Queues, credits, order, checkpoints and replay stay ours, in the process that starts the run: Ray restarts processes,
never state, and with its own retries calls come twice. An actor that dies is started again from the last checkpoint
and replays what it had not acknowledged, exactly as a local process does (`processes.ProcessHost`). Payloads pass
through the starting process, one item at a time for each stage: made for stages of milliseconds and more. Campaigns on
clusters (`metalforge.cluster`) use the same actors and connections, one actor a node.
"""

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from metalforge.core import PluginError

from .errors import PipelineError
from .graph import PipelineGraph, StageSpec
from .hosts import StageServer
from .processes import Died, ProcessHost
from .stages import Collect
from .supervisor import Run

if TYPE_CHECKING:
    from types import ModuleType

_CPUS = 0.1
"""Cores of a stage's actor, so that a small machine holds many: three of a whole core on two cores wait for ever."""
_START_S = 60.0  # a worker process imports the package; a cluster that grows by itself may need more: `start_s`
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""With 0 Ray's servers listen on 127.0.0.1 only, on Linux too; read when Ray is imported."""


def import_ray() -> "ModuleType":
    """Return Ray; raises `PluginError` where it is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise PluginError(f"a cluster needs ray: {error}\nhint: pip install 'metalforge[ray]'") from error


def first_line(error: object) -> str:
    """Return the first line of an error's message: Ray adds the remote traceback below it."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def start_actor(ray: "ModuleType", kind: type, *arguments: Any, node: str = "", **options: Any) -> Any:
    """Start an actor, on a node where one is given by its id. Ray repeats none of its calls."""
    if node:
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        options["scheduling_strategy"] = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(kind).options(**{"max_restarts": 0, "max_task_retries": 0, **options}).remote(*arguments)


class RayConnection:
    """A stage that an actor serves, as a connection of a `ProcessHost`.

    The actor has a method `do(*which, verb, arguments)`, where `which` says which of its stages is meant.
    """

    def __init__(self, ray: "ModuleType", actor: Any, *which: str) -> None:
        self._ray, self._actor, self._which = ray, actor, which
        self.pid: int | None = None  # until it is opened: 0 would mean the caller's own group to `os.kill`

    def request(self, verb: str, arguments: tuple[Any, ...], timeout_s: float | None) -> Any:
        """Ask the actor and wait; raises what the stage raised, `Died`, or TimeoutError."""
        errors = self._ray.exceptions
        try:
            result = self._ray.get(self._actor.do.remote(*self._which, verb, arguments), timeout=timeout_s)
        except errors.GetTimeoutError as late:
            raise TimeoutError(str(late)) from late
        except errors.RayTaskError as error:
            cause = getattr(error, "cause", None)
            if not isinstance(cause, Exception):
                raise
            cause.add_note(str(error))  # with the traceback there
            raise cause from None
        except errors.RayError as death:
            raise Died(first_line(death)) from death
        if verb == "open":
            self.pid = int(result)
        return result

    def kill(self) -> None:
        """End the actor now."""
        self._ray.kill(self._actor)

    def close(self) -> None:
        """End the actor."""
        self.kill()


class StageActor(RayConnection):
    """One stage in an actor of its own, placed by what it wants (`options` of Ray's actors)."""

    def __init__(self, spec: StageSpec, options: Mapping[str, Any], start_s: float = _START_S) -> None:
        self._name, self._start_s, self._options = spec.name, start_s, {"num_cpus": _CPUS, **options}
        ray = import_ray()
        super().__init__(ray, start_actor(ray, StageServer, **self._options))

    def request(self, verb: str, arguments: tuple[Any, ...], timeout_s: float | None) -> Any:
        """Ask the actor and wait; the first time, until it runs somewhere or found no place in time."""
        if verb == "open":
            try:
                self._ray.get(self._actor.__ray_ready__.remote(), timeout=self._start_s)
            except self._ray.exceptions.GetTimeoutError as late:
                raise PipelineError(self._no_place()) from late
        return super().request(verb, arguments, timeout_s)

    def _no_place(self) -> str:
        """Return what the cluster lacks for this stage, in words."""
        wanted = {"CPU": self._options["num_cpus"], "GPU": self._options.get("num_gpus", 0)}
        wanted |= self._options.get("resources", {})
        there, free = self._ray.cluster_resources(), self._ray.available_resources()
        lacks = [
            f"{amount:g} {name} of which the cluster has {there.get(name, 0):g} ({free.get(name, 0):g} free)"
            for name, amount in wanted.items()
            if amount > free.get(name, 0)
        ]
        nodes = self._ray.nodes()
        return (
            f"stage `{self._name}` found no place on Ray within {self._start_s:g} s: "
            + (f"it wants {', '.join(lacks)}" if lacks else "what it wants is there, but its worker did not start")
            + f"; {sum(node['Alive'] for node in nodes)} of {len(nodes)} nodes are alive\n"
            "hint: `resources` says what a stage wants, `start_s` how long it may wait for it"
        )


class RayRun(Run):
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
        os.environ.setdefault(_LOOPBACK, "0")
        self._ray = import_ray()
        self._ours = not self._ray.is_initialized()
        if self._ours:
            self._ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
        wants = resources or {}

        def host_of(spec: StageSpec) -> ProcessHost | None:
            if isinstance(spec.stage, Collect):  # a sink that the caller reads stays in this process
                return None
            return ProcessHost(spec, lambda spec: StageActor(spec, wants.get(spec.name, {}), start_s))

        super().__init__(graph, host_of=host_of, **options)

    def _release(self) -> None:
        super()._release()
        if self._ours and self._ray.is_initialized():
            self._ray.shutdown()
