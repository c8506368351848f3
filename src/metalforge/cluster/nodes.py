"""The nodes of a Ray cluster: each with one worker, an actor that is asked what the node has and does its work."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from metalforge.core import PlacementError, Quantity, SpecError
from metalforge.pipeline import StageCrashError, first_line, start_actor

from .lanes import LaneFacts
from .worker import NodeFacts, NodeWorker

if TYPE_CHECKING:
    from types import ModuleType

START_S = 60.0
"""Seconds that a worker may take to start: it imports the package."""
LOOK_S = 1.0
"""Seconds between two checks whether a node is still there, while its worker is waited for."""
LATE_S, SILENT_S = 20.0, 60.0
"""Seconds after which a worker that does not answer is reported in the journal, and after which it is ended."""
LEVELS = ("portable", "v2", "v3", "v4")
"""Build levels of kernels, the plainest first."""


@dataclass(eq=False)
class ClusterNode:
    """A node, its worker, and what a campaign has there."""

    ray: "ModuleType"
    id: str
    label: str
    cores: int
    cards: int
    worker: Any = None
    facts: NodeFacts | None = None
    lanes: tuple[LaneFacts, ...] = ()
    gone: str = ""
    """Why nothing is run there any more."""
    last: str = ""
    """What its lanes failed with last."""
    disk: int = 0
    """The number of the system's error, where that was the disk's."""
    heard: float = field(default_factory=time.monotonic)
    asked: Any = None
    """The answer to the last ping, which may not be there yet."""
    late: bool = False
    """Whether it was reported that it does not answer."""
    joules: dict[str, Quantity] = field(default_factory=dict)
    """The readings of its meters in the last answer."""
    lock: Lock = field(default_factory=Lock)

    def start(self, directory: Path, *, cores: int = 0, cards: int = 0, calls: int = 1) -> Any:
        """Start a worker, which may have so many calls under way, and return it."""
        options = {"num_cpus": cores, "num_gpus": cards, "max_concurrency": calls}
        return start_actor(self.ray, NodeWorker, str(directory), node=self.id, **options)

    def get(self, answer: Any) -> Any:
        """Return an answer of a worker that may have to start first; raises where its node goes away meanwhile."""
        errors = self.ray.exceptions
        deadline = time.monotonic() + START_S
        while True:
            try:
                return self.ray.get(answer, timeout=LOOK_S)
            except errors.GetTimeoutError:
                if all(one["NodeID"] != self.id for one in live_nodes(self.ray)):
                    raise StageCrashError(f"node {self.label} is not there any more") from None
                if time.monotonic() > deadline:
                    raise StageCrashError(f"no worker started on node {self.label} within {START_S:g} s") from None
            except errors.RayError as error:
                raise StageCrashError(
                    f"node {self.label}: {first_line(getattr(error, 'cause', None) or error)}"
                ) from error

    def end(self) -> None:
        """End the worker, if there is one."""
        worker, self.worker = self.worker, None
        if worker is not None:
            self.ray.kill(worker)

    def ping(self) -> str:
        """Ask whether the worker answers; one that is silent for long is ended. Returns what is to be reported."""
        worker = self.worker
        if worker is None:
            return ""
        asked = self.asked = self.asked or worker.ping.remote()  # a lane that found it dead may forget it
        done, _ = self.ray.wait([asked], timeout=0)
        if done:
            self.asked, self.heard, self.late = None, time.monotonic(), False
            self.joules = self.ray.get(asked)
        elif (silent_s := time.monotonic() - self.heard) > SILENT_S:
            self.ray.kill(worker)  # pending requests to it raise its death
            self.asked, self.heard = None, time.monotonic()
        elif silent_s > LATE_S and not self.late:
            self.late = True
            return f"has not answered for {LATE_S:g} s, and is given up after {SILENT_S:g}"
        return ""


def ask_all(nodes: Sequence[ClusterNode], question: Callable[[ClusterNode], Any]) -> list[tuple[ClusterNode, Any]]:
    """Return the nodes that answered with their answers, asked all at once; one that did not is given up."""
    found = []
    for node, answer in [(node, question(node)) for node in nodes]:
        try:
            found.append((node, node.get(answer)))
        except StageCrashError as error:
            node.gone = str(error)
            node.end()
    return found


def live_nodes(ray: "ModuleType") -> list[dict[str, Any]]:
    """Return the nodes that are there, the head first."""
    alive = [one for one in ray.nodes() if one["Alive"]]
    return sorted(alive, key=lambda one: ("node:__internal_head__" not in one["Resources"], one["NodeID"]))


def label_of(one: dict[str, Any], taken: Collection[str]) -> str:
    """Return a short name for a node, which no other has."""
    host = one.get("NodeName") or one.get("NodeManagerHostname") or "node"
    plain = "".join(c if c.isalnum() else "-" for c in str(host).partition(".")[0]).strip("-") or "node"
    if plain.replace("-", "").isdigit():
        plain = "node"
    labels = (f"{plain}-{n}" for n in range(1, len(taken) + 2))
    return next(label for label in labels if label not in taken)


def look(ray: "ModuleType") -> list[NodeFacts]:
    """Return what each node has, the head first; raises `PlacementError` where one does not answer or differs."""
    nodes: list[ClusterNode] = []
    for one in live_nodes(ray):
        label = label_of(one, [node.label for node in nodes])
        nodes.append(ClusterNode(ray, id=one["NodeID"], label=label, cores=0, cards=0))
        nodes[-1].worker = nodes[-1].start(Path())
    found = [facts for _, facts in ask_all(nodes, lambda node: node.worker.facts.remote())]
    for node in nodes:
        node.end()
    if silent := [node for node in nodes if node.gone]:
        raise PlacementError(
            f"{len(silent)} of {len(nodes)} nodes cannot run metalforge: {'; '.join(node.gone for node in silent)}"
            "\nhint: the same version must be installed on every node, for the same Python"
        )
    versions = {facts.version for facts in found}
    if len(versions) > 1:
        raise PlacementError(f"the nodes have different versions of metalforge: {', '.join(sorted(versions))}")
    return found


def common_level(found: list[NodeFacts]) -> str:
    """Return the highest build level of the kernels that every node can run: chains may go on on any of them."""
    able = set.intersection(*(set(facts.levels) for facts in found))
    if not able:
        raise SpecError("no build level of the kernels runs on all nodes of the cluster: they differ in architecture")
    return max(able, key=LEVELS.index)
