"""The nodes of a Ray cluster as a campaign's machines: lanes on all of them, and what to do when one comes or goes.

A node has one worker (`worker.NodeWorker`) with all its lanes. Ray starts processes and carries messages; what is
repeated after a death, and that nothing is written twice, is the campaign's own (`lanes.LaneHost`). A deterministic
campaign has as many lanes as its spec says, whatever the cluster has: where a node is lost they go on elsewhere. Any
other has a lane for every core and card, loses those of a lost node, and takes a new one up when it comes.
"""

import importlib
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from metalforge.campaign import JOURNAL, CampaignSpec, ChainLane, Machines, StopFlag, stage_of
from metalforge.core import Closing, PlacementError, Quantity
from metalforge.pipeline import Died, Pipeline, RayConnection, Run, StageCrashError, StageSpec, first_line

from .lanes import FarCard, FarEngine, FarSubstrate, LaneFacts, LaneHost
from .nodes import SILENT_S, ClusterNode, ask_all, common_level, label_of, live_nodes
from .worker import DISK, LEVEL, halt_here

if TYPE_CHECKING:
    from types import ModuleType

WATCH_S = 2.0
"""Between two looks at a cluster that works: each is a call to every node."""
FAILURES = 3
"""Of one lane, after which it is given up; of one that must go on, in a row, after which its node is."""
SPARE_CALLS = 4
"""Calls of a worker beside those of its lanes: flags, pings, meters."""


class _FarFlag(StopFlag):
    """Tells producers on all nodes to stop; what it becomes there is the flag of the worker's process."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.is_set, self._changed = False, changed

    def set(self) -> None:  # may be called from a signal handler: the watching thread tells the nodes
        self.is_set = True
        self._changed()

    def clear(self) -> None:
        self.is_set = False
        self._changed()

    def __call__(self) -> bool:
        return self.is_set

    def __reduce__(self) -> tuple[Callable[[], Callable[[], bool]], tuple[()]]:
        return halt_here, ()


class LaneConnection(RayConnection):
    """One lane of a node's worker, as a `ProcessHost` asks it."""

    def __init__(self, machines: "RayMachines", node: ClusterNode, worker: Any, lane: str) -> None:
        super().__init__(machines.ray, worker, lane)
        self._machines, self._node, self._lane = machines, node, lane

    def request(self, verb: str, arguments: tuple[Any, ...], timeout_s: float | None) -> Any:
        """Return the answer; raises what the producer raised, or `Died`."""
        node = self._node
        try:
            result = super().request(verb, arguments, timeout_s)
        except Died as death:
            if node.worker is self._actor:  # another is started when a lane needs it
                node.worker = node.asked = None
            raise self._failed(f"the worker on {node.label} died: {death}") from death
        except OSError as error:
            if error.errno not in DISK:
                raise
            # It is this node's: chains go on from their files, there or elsewhere.
            node.disk = error.errno
            raise self._failed(first_line(error)) from error
        node.heard = time.monotonic()
        if verb == "step" and self._machines.fixed and any(block.segments for made in result for block in made.blocks):
            self._machines.failures[self._lane] = 0  # a lane that is moved about counts its failures in a row
        return result

    def _failed(self, why: str) -> Died:
        """Return the end of this connection; a lane has a few of them."""
        self._node.last = why
        self._machines.failures[self._lane] += 1
        return Died(why)

    def kill(self) -> None:
        """Do nothing: the worker has other lanes, and a lane that is opened there again begins anew."""


class RayMachines(Machines, Closing):
    """All nodes of a cluster that this process has joined, for one campaign in `directory`."""

    carried_by = "node"

    def __init__(self, ray: "ModuleType", directory: Path) -> None:
        self.ray, self._directory = ray, directory
        self._level = os.environ.get(LEVEL, "")
        """Build level of the kernels on all nodes; nothing before the first were asked what they can run."""
        self._nodes: dict[str, ClusterNode] = {}
        self._homes: dict[str, tuple[ClusterNode, LaneFacts]] = {}
        """Where each lane is, or was."""
        self.failures: Counter[str] = Counter()
        """Of each lane."""
        self._said: deque[tuple[str, str]] = deque()
        self.fixed, self._producers = False, 0
        """Whether lanes that lose their node go on elsewhere; how many the spec asks for."""
        self._grown = threading.Event()
        self._wake, self._over = threading.Event(), threading.Event()
        self._flag = _FarFlag(self._wake.set)
        self._lock = threading.RLock()
        self._watch = threading.Thread(target=self._look_after, name="cluster-watch", daemon=True)
        self._watch.start()

    # -- the campaign's side ------------------------------------------------------------------------------------------

    def lanes(self, spec: CampaignSpec, without: Collection[str] = ()) -> tuple[ChainLane, ...]:
        """Return the lanes of all nodes that are there now."""
        self._grown.clear()
        self.fixed, self._producers = spec.running.deterministic, spec.running.producers
        with self._lock:
            self._take_in(spec)
            lanes = self._logical(spec) if self.fixed else self._all(spec, set(without))
            homes = {self._homes[lane.name][0].id for lane in lanes}
            for node in self._nodes.values():
                if node.id not in homes:  # another campaign may have its cores
                    node.end()
        if not lanes:
            disk = max((node.disk for node in self._nodes.values()), default=0)
            why = "; ".join(f"{node.label}: {node.gone or 'no core is free'}" for node in self._nodes.values())
            raise PlacementError(
                f"no node of the cluster can run a chain: {why or 'it has no nodes'}"
                "\nhint: metalforge devices --cluster shows what its nodes have"
            ) from (OSError(disk, os.strerror(disk)) if disk else None)
        return tuple(lanes)

    def check(self, spec: CampaignSpec, lanes: Collection[ChainLane]) -> None:
        """Do nothing: every node has checked its own memory."""

    def flag(self, directory: Path) -> StopFlag:
        """Return the flag of all nodes."""
        return self._flag

    def start(self, graph: Pipeline) -> Run:
        """Start the graph here, with its producers on their nodes."""
        stages = {stage_of(name): name for name in self._homes}

        def host_of(spec: StageSpec) -> LaneHost | None:
            lane = stages.get(spec.name)
            return None if lane is None else LaneHost(spec, lambda _: self._connect(lane), lane)

        return graph.start(host_of=host_of)

    def grown(self) -> bool:
        """Whether a node has come that has no lanes yet."""
        return self._grown.is_set()

    def placed(self) -> list[tuple[str, str]]:
        """Return what happened to lanes since the last call."""
        return [self._said.popleft() for _ in range(len(self._said))]

    def close(self) -> None:
        """End all workers."""
        self._over.set()
        self._wake.set()
        self._watch.join(WATCH_S + SILENT_S)
        for node in self._nodes.values():
            node.end()

    # -- nodes --------------------------------------------------------------------------------------------------------

    def leave(self, node_id: str, reason: str) -> bool:
        """Give up a node that will be taken away, at its next updates and with all chains in their files."""
        node = self._nodes.get(node_id)
        if node is None or node.worker is None:
            return False
        node.gone = reason
        node.worker.leave.remote(reason)
        return True

    def holds(self, node_id: str) -> bool:
        """Return whether a lane of a node is still at work."""
        node = self._nodes.get(node_id)
        return node is not None and node.worker is not None

    def _take_in(self, spec: CampaignSpec) -> None:
        """Start workers on nodes that have none, all at once, and ask them for their lanes."""
        there = {one["NodeID"]: one for one in live_nodes(self.ray)}
        free = importlib.import_module("ray._private.state").available_resources_per_node()
        for node_id, one in there.items():
            if node_id not in self._nodes:
                has = free.get(node_id, one["Resources"])
                label = label_of(one, {node.label for node in self._nodes.values()})
                cores, cards = int(has.get("CPU", 0)), int(has.get("GPU", 0))
                self._nodes[node_id] = ClusterNode(self.ray, id=node_id, label=label, cores=cores, cards=cards)
        for node_id, node in self._nodes.items():
            if node_id not in there:
                node.gone, node.worker = node.gone or "it is not there any more", None
            elif node.gone:
                node.end()  # what it had to write is written
        new = [node for node in self._nodes.values() if not node.gone and node.cores + node.cards and not node.lanes]
        probe = self._directory / JOURNAL
        for node in new:
            node.worker = self._new_worker(node)
        for node, facts in ask_all(new, lambda node: node.worker.facts.remote(str(probe))):
            node.facts = facts
        new = [node for node in new if node.facts is not None]
        if not self._level and new:
            self._level = os.environ[LEVEL] = common_level([node.facts for node in new if node.facts is not None])
        asked = ask_all(new, lambda node: node.worker.lanes.remote(spec, node.cores, self._level))
        for node, lanes in asked:
            node.lanes = tuple(lanes)
            models = dict.fromkeys(lane.info.model for lane in node.lanes)
            sees = "" if not probe.exists() or (node.facts and node.facts.sees) else "; it does not see the directory"
            what = f"{node.facts and node.facts.host}: {len(node.lanes)} lanes on {', '.join(models)}{sees}"
            self._said.append((f"node {node.label}", what))

    def _new_worker(self, node: ClusterNode) -> Any:
        # Each lane has one call under way; all lanes of a deterministic campaign may come to one node.
        lanes = self._producers or sum(one.cores for one in self._nodes.values())
        calls = (max(node.cores, lanes) if self.fixed else node.cores) + node.cards + SPARE_CALLS
        return node.start(self._directory, cores=node.cores, cards=node.cards, calls=calls)

    # -- lanes --------------------------------------------------------------------------------------------------------

    def _all(self, spec: CampaignSpec, without: set[str]) -> list[ChainLane]:
        """Return the lanes of all nodes, cards first; where the spec says how many, in turns over the nodes."""
        able = [node for node in self._nodes.values() if not node.gone]
        found = [(f"{facts.name}.{node.label}", node, facts) for node in able for facts in node.lanes]
        found = sorted((one for one in found if one[0] not in without), key=lambda one: not one[2].sites)
        if spec.running.producers and not any(facts.sites for _, _, facts in found):
            turns = sorted(found, key=lambda one: int(one[2].name.partition(":")[2] or 0))
            found = turns[: spec.running.producers]
        return [self._lane(*one) for one in found]

    def _logical(self, spec: CampaignSpec) -> list[ChainLane]:
        """Return as many lanes as a deterministic campaign has anywhere, spread over the nodes."""
        nodes = [node for node in self._nodes.values() if not node.gone and node.lanes]
        lanes = range(spec.running.producers or sum(len(node.lanes) for node in nodes)) if nodes else ()
        return [self._lane(f"cpu:{i}", (node := nodes[i % len(nodes)]), node.lanes[0]) for i in lanes]

    def _lane(self, name: str, node: ClusterNode, facts: LaneFacts) -> ChainLane:
        if self._homes.get(name, (None,))[0] is not node:
            self._homes[name] = node, facts
            self._said.append((name, f"on node {node.label}"))
        info, silicon = msgspec.structs.replace(facts.info, name=f"{facts.info.name}.{node.label}"), facts.info.name

        def joules() -> Quantity:
            found: Quantity = node.get(node.worker.joules.remote(silicon))
            return found

        far = FarSubstrate(info, silicon, facts.dark, joules, lambda: node.joules.get(silicon))
        return ChainLane(
            name=name,
            substrate=far,  # type: ignore[arg-type]
            engine=(FarCard if facts.sites else FarEngine)(facts),  # type: ignore[arg-type]
            systems=facts.volumes,
            most=facts.most,
        )

    def _connect(self, lane: str) -> LaneConnection:
        """Return a connection to the lane's worker, started where there is none; raises where the lane has no place."""
        node, facts = self._homes[lane]
        if self.failures[lane] >= FAILURES:
            why = f"quarantined after {FAILURES} failures, the last on node {node.label}: {node.last}"
            if not self.fixed:
                raise StageCrashError(why)
            node.gone = node.gone or why
        while True:
            try:
                return LaneConnection(self, node, self._worker(node), lane)
            except StageCrashError as error:
                node.gone = node.gone or str(error)
                if not self.fixed:
                    raise
                node = self._elsewhere(lane, facts, error)

    def _elsewhere(self, lane: str, facts: LaneFacts, error: StageCrashError) -> ClusterNode:
        """Return another node for a lane that must go on."""
        with self._lock:
            able = [node for node in self._nodes.values() if not node.gone and node.lanes]
            if not able:
                raise error
            load = {node.id: sum(home is node for home, _ in self._homes.values()) for node in able}
            node = min(able, key=lambda one: load[one.id])
            self._homes[lane] = node, facts
            self.failures[lane] = 0
            self._said.append((lane, f"goes on on node {node.label}: {error}"))
            return node

    def _worker(self, node: ClusterNode) -> Any:
        """Return the worker of a node, which answers."""
        with node.lock:
            if node.gone:
                raise StageCrashError(f"node {node.label}: {node.gone}")
            worker = node.worker
            if worker is None:
                worker = self._new_worker(node)
                node.get(worker.at_level.remote(self._level))
                node.worker, node.heard = worker, time.monotonic()
                if self._flag.is_set:
                    worker.halt.remote(True)
            return worker

    # -- watching -----------------------------------------------------------------------------------------------------

    def _look_after(self) -> None:
        """Tell nodes of the flag, look for new ones, end workers that are silent."""
        told = False
        while not self._over.is_set():
            self._wake.wait(WATCH_S)
            self._wake.clear()
            workers = [node for node in tuple(self._nodes.values()) if node.worker is not None]
            if self._flag.is_set != told:
                told = self._flag.is_set
                for node in workers:
                    if (worker := node.worker) is not None:
                        worker.halt.remote(told)
            try:
                for node in workers:
                    with suppress(self.ray.exceptions.RayError):  # it died: pending requests to it raise that
                        if late := node.ping():
                            self._said.append((f"node {node.label}", late))
                if not self.fixed and self._nodes:
                    new = [one for one in live_nodes(self.ray) if one["NodeID"] not in self._nodes]
                    if any(one["Resources"].get("CPU", 0) for one in new):
                        self._grown.set()
            except self.ray.exceptions.RayError:
                continue  # the cluster is not there now; pending requests raise that
