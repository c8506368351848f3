"""A campaign that outlives the terminal: an actor with a name, on the node that has the campaign's directory.

It runs the same `Campaign` as one machine does, with the cluster's nodes as its machines, and writes the same journal.
When it dies Ray starts it again, and it goes on from there: the journal is all that it has. Whoever knows the directory
can find it, ask how it stands, and tell it to stop.
"""

import hashlib
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from metalforge.campaign import JOURNAL, Campaign, CampaignSpec, Extension, Results, View
from metalforge.core import MetalforgeError, PlacementError
from metalforge.pipeline import portable, start_actor

from .joining import NAMESPACE
from .machines import RayMachines
from .worker import system_error

if TYPE_CHECKING:
    from types import ModuleType

PREFIX = "campaign "
KEPT_S = 3600.0
"""Seconds that a supervisor whose campaign is over waits for questions before it ends."""
END_S = 30.0
FOREVER = -1


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a campaign ended, or that it was stopped; `said` is for those who do not see its directory."""

    kind: Literal["finished", "interrupted", "failed"]
    reason: str = ""
    number: int = 0
    """Of the system's error that it failed with, if it was one: an exit code is found by it."""
    error: Exception | None = None
    said: tuple[str, ...] = ()
    summary: dict[str, Any] | None = None


def name_of(directory: Path) -> str:
    """Return the name of the supervisor of a directory."""
    return PREFIX + hashlib.sha256(str(directory).encode()).hexdigest()[:16]


class Supervisor:
    """Runs one campaign. Every public method may be called at any time, by anybody in the cluster."""

    def __init__(
        self, directory: str, spec: CampaignSpec | None, more: Extension | None, command: Sequence[str]
    ) -> None:
        import ray

        self._ray, self._directory = ray, Path(directory)
        self._campaign: Campaign | None = None
        self._machines: RayMachines | None = None
        self._outcome: Outcome | None = None
        self._halt = ""
        again = ray.get_runtime_context().was_current_actor_reconstructed
        if came_back := again and (self._directory / JOURNAL).exists():
            spec, more = None, None
        self._came_back = came_back
        self._thread = threading.Thread(target=self._run, args=(spec, more, tuple(command)), daemon=True)
        self._thread.start()

    def _run(self, spec: CampaignSpec | None, more: Extension | None, command: Sequence[str]) -> None:
        try:
            self._outcome = self._carry_out(spec, more, command)
        except Exception as error:
            reason = str(error) if isinstance(error, MetalforgeError) else traceback.format_exc()
            number = system_error(error)
            self._outcome = Outcome(kind="failed", reason=reason, number=number, error=portable(error))
        time.sleep(KEPT_S)  # in which questions can be asked
        self._ray.kill(self._ray.get_runtime_context().current_actor)

    def _carry_out(self, spec: CampaignSpec | None, more: Extension | None, command: Sequence[str]) -> Outcome:
        with RayMachines(self._ray, self._directory) as self._machines:
            how: dict[str, Any] = {"command": command, "machines": self._machines}
            opened = (
                Campaign.resume(self._directory, more=more, stay_paused=self._came_back, **how)  # no command said go on
                if spec is None
                else Campaign.open(spec, self._directory, **how)
            )
            with opened as self._campaign:
                if self._halt:
                    self._campaign.interrupt(self._halt)
                state = self._campaign.run()
        if state.finished is None:
            return Outcome(kind="interrupted", reason=state.interrupted[-1].reason)
        found = Results(state, self._directory)
        found.report()
        return Outcome(kind="finished", said=tuple(found.said), summary=found.summary)

    def view(self) -> View | None:
        """Return how it stands; None while it is being opened."""
        campaign = self._campaign
        return None if campaign is None else campaign.view()

    def outcome(self) -> Outcome | None:
        """Return how it ended; None while it runs."""
        return self._outcome

    def interrupt(self, reason: str) -> None:
        """Let it stop at the next update, with everything written."""
        self._halt = reason
        if self._campaign is not None:
            self._campaign.interrupt(reason)

    def leave(self, node: str, reason: str) -> bool:
        """Give up a node that will be taken away; return whether it had work there."""
        return self._machines is not None and self._machines.leave(node, reason)

    def holds(self, node: str) -> bool:
        """Return whether the campaign still has work on a node."""
        return self._machines is not None and self._outcome is None and self._machines.holds(node)


def find(ray: "ModuleType", directory: Path) -> Any:
    """Return the supervisor of a directory, dead or alive; None where there is none."""
    try:
        return ray.get_actor(name_of(directory), namespace=NAMESPACE)
    except ValueError:
        return None


def leave_node(ray: "ModuleType", node: str, reason: str, grace_s: float) -> tuple[int, int]:
    """Ask all campaigns of the cluster to give a node up; return how many had work there, and how many still have.

    Their chains are in their files when they have given it up. Waits no longer than the grace time.
    """
    named = ray.util.list_named_actors(all_namespaces=True)
    found = [
        ray.get_actor(one["name"], namespace=NAMESPACE)
        for one in named
        if one["namespace"] == NAMESPACE and one["name"].startswith(PREFIX)
    ]
    asked = [one for one in found if ray.get(one.leave.remote(node, reason), timeout=grace_s)]
    deadline = time.monotonic() + grace_s
    left = asked
    while left and time.monotonic() < deadline:
        left = [one for one in left if ray.get(one.holds.remote(node), timeout=grace_s)]
        time.sleep(0.2 if left else 0.0)
    return len(asked), len(left)


def end(ray: "ModuleType", directory: Path, actor: Any) -> None:
    """End a supervisor, and return when its name is free."""
    ray.kill(actor)
    deadline = time.monotonic() + END_S
    while find(ray, directory) is not None:
        if time.monotonic() > deadline:
            raise PlacementError(f"{directory}: its supervisor does not end\nhint: try again in a minute")
        time.sleep(0.1)


def begin(
    ray: "ModuleType",
    directory: Path,
    *,
    spec: CampaignSpec | None,
    more: Extension | None = None,
    command: Sequence[str] = (),
) -> Any:
    """Start the supervisor of a directory on this process' node; with a spec a campaign begins, without it goes on."""
    return start_actor(
        ray, Supervisor, str(directory), spec, more, tuple(command),
        # The directory is there, and its lock: another machine could not tell that it is held.
        node=ray.get_runtime_context().get_node_id(),
        name=name_of(directory), namespace=NAMESPACE, lifetime="detached",
        num_cpus=0, max_restarts=FOREVER, max_concurrency=8,
    )  # fmt: skip
