"""Rewiring a graph while it runs: only the producers of changed edges stand still, and no item is lost or repeated.

An edge is taken away by sending END on it, as if its producer had ended it: what is queued stays in the consumer's
inbox, in order, before anything that comes over a new edge. So consumers need not be paused at all. A stage is taken
away by ending its input: it processes what it has, sends its last outputs and ends, while the rest runs on; or
(`carry`), where its producers got new edges in its place, what is queued before it moves to those; `leave` is for a
stage beside a path, whose producers' new edges carry other copies. A stage that a topology leaves out is detached in
the same way, but does not finish: it waits with its state and counters until it is attached again. The state of a stage
moves from one substrate to another at an item border, too, while the rest of the graph runs.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from metalforge.core import discover, find, require_one_of, spelled

from .checks import check
from .errors import GraphError, PipelineError, failure_of
from .graph import PipelineGraph, StageSpec
from .items import Item
from .lanes import END, NUDGE, Lane
from .worker import StageWorker

if TYPE_CHECKING:
    from .hosts import Host
    from .stages import OnSubstrate
    from .supervisor import Run


class Receipt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a reconfiguration did. Every item queued on a changed edge is in one of `kept`, `moved`, `drained`."""

    kept: int
    """Queued on a changed edge; stays with its consumer, in order."""
    moved: int
    """Queued before a removed stage; moved to the edges that take its place."""
    drained: int
    """Processed by their consumer before the change, or left for a removed stage to process before it ends."""
    dropped: int
    paused: tuple[str, ...]
    pause_ms: float
    added_stages: tuple[str, ...] = ()
    removed_stages: tuple[str, ...] = ()
    """Stages that left the graph, detached or for good."""
    changed_stages: tuple[str, ...] = ()
    added_edges: tuple[str, ...] = ()
    removed_edges: tuple[str, ...] = ()


class Migration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A move that was made: from where to where, how many bytes, and their SHA-256 on both sides."""

    stage: str
    source: str | None
    target: str | None
    state_bytes: int
    sha256: str
    pause_ms: float


def reconfigure(
    run: "Run", new: PipelineGraph, queued: str, timeout: float | None, drain_s: float, *, detaches: bool
) -> Receipt:
    """Change a running graph into `new`; on any error the old one runs on as it was.

    Stages that `new` does not have are detached, or ended.
    """
    if run.status not in ("running", "paused"):
        raise PipelineError(f"a run that is {run.status} cannot be rewired")
    require_one_of("carry", "drain", "leave", queued=queued)
    known = {**{name: worker.spec for name, worker in run.detached.items()}, **run.graph.stages}
    moved = {n: s for n, s in new.stages.items() if n in known and s.substrate != known[n].substrate}
    there = {n: replace(s, substrate=find_substrate(s.substrate, known.values())) for n, s in moved.items()}
    new = replace(new, stages={**new.stages, **there})
    check(new)
    change = _Change(run, new.resolved(), known, detaches=detaches)
    if problems := change.problems():
        raise GraphError(problems)
    return change.make(queued, timeout, drain_s)


def find_substrate(to: "OnSubstrate | str | None", stages: Iterable[StageSpec]) -> "OnSubstrate | str | None":
    """Return the substrate with a name: of one of the stages, or of this machine; raises with the names there are."""
    if not isinstance(to, str):
        return to
    name = spelled(to)
    known = {spec.substrate_name: spec.substrate for spec in stages}
    if name not in known:
        known |= {one.info.name: one for one in discover().substrates}
    return find("substrate", name, {n: substrate for n, substrate in known.items() if n is not None})


class _Change:
    """One reconfiguration: what differs between the graph that runs and the one that is wanted, and how it is made."""

    def __init__(self, run: "Run", new: PipelineGraph, known: dict[str, StageSpec], *, detaches: bool) -> None:
        old = run.graph
        self.run, self.old, self.new, self.detaches, self.carries = run, old, new, detaches, True
        self.added_stages = [n for n in new.stages if n not in old.stages]
        self.removed_stages = [n for n in old.stages if n not in new.stages]
        self.returning = [n for n in self.added_stages if n in run.detached]
        self.changed = {n: (known[n], s) for n, s in new.stages.items() if n in known and known[n] != s}
        """Stages with other settings, another place or another implementation: what they were and what they will be."""
        before, after = ({e.ends: e for e in graph.edges} for graph in (old, new))
        # Whether the edges of a droppable stage block is decided when they are opened.
        rewired = {n for n, (was, will) in self.changed.items() if was.config.droppable != will.config.droppable}
        differ = {ends for ends, e in after.items() if before.get(ends) != e or e.target in rewired}
        self.added = [e for ends, e in after.items() if ends in differ]
        self.removed = [e for ends, e in before.items() if ends in differ or ends not in after]
        self.kept = self.moved = self.drained = 0

    def problems(self) -> list[str]:
        """Return why this change cannot be made on a running graph, although the new graph is a good one."""
        run = self.run
        touched = {n for e in (*self.added, *self.removed) for n in e.ends}
        touched |= {*self.added_stages, *self.removed_stages, *self.changed}
        leaving = {w.name for w in run.retired}
        other = [n for n, (was, will) in self.changed.items() if was.stage is not will.stage]
        found = [f"stage `{name}` has another implementation: add it under another name" for name in other]
        found += [
            f"stage `{name}` is part of a cycle with a token budget, which cannot be changed while it runs"
            for name in sorted(touched & set(run.ring_of))
        ]
        if any(e.tokens is not None for e in self.added):
            found.append("an edge with a token budget cannot be added while the graph runs")
        found += [f"stage `{n}` is still ending; use another name" for n in self.added_stages if n in leaving]
        return found + self._too_late()

    def _too_late(self) -> list[str]:
        """Return which edits come too late: their stages have ended or are ending."""
        run = self.run
        late = [
            f"stage `{name}` cannot be attached again: the run is ending"
            for name in self.returning
            if run.detached[name].ended or run.detached[name].bond == "attached"
        ]
        for edge in self.added:
            target = run.workers.get(edge.target)
            if target is not None and (target.ended or target.finish_asked or run.endings.is_closing(target)):
                late.append(f"edge {edge} comes too late: `{edge.target}` has ended or is ending")
        for name in self.added_stages:
            feeds = [e.source for e in self.new.edges if e.target == name]
            if feeds and all(source in run.workers and run.workers[source].ended for source in feeds):
                late.append(f"stage `{name}` comes too late: everything before it has ended")
        return late

    def make(self, queued: str, timeout: float | None, drain_s: float) -> Receipt:
        """Hold, drain if asked, switch, let go.

        To drain, producers are held in the order data flows: each one's consumers, which still run, process what it
        sent before they are held themselves.
        """
        run = self.run
        self.carries = queued != "leave"
        was_paused = run.status == "paused"
        touched = {e.source for e in (*self.added, *self.removed)} | {*self.changed, *self.removed_stages}
        order = [run.workers[n] for group in self.old.components() for n in group if n in touched]
        back = [run.detached[name] for name in self.returning]
        if not was_paused:  # what was queued for them is processed first
            run.wait_until(
                lambda: run.aborting or all(w.bond == "detached" for w in back),
                run.hang_s if timeout is None else timeout,
            )
        if leaving := [w.name for w in back if w.bond != "detached"]:
            raise TimeoutError(f"still processing what was queued before it was detached: {', '.join(leaving)}")
        order += back
        drains = queued == "drain" and not was_paused
        began = run.clock_ns()
        held: list[StageWorker] = []
        try:
            for group in [[worker] for worker in order] if drains else [order]:
                if reason := run.hold(group, timeout):
                    raise TimeoutError(f"nothing was rewired, the old graph runs on: {reason}")
                held += group
                if drains:
                    self._drain(group[0], held, drain_s - (run.clock_ns() - began) * 1e-9)
            with run.lock:
                if late := self._too_late():
                    raise GraphError(late)
                started = self._switch()
        finally:
            if not was_paused:
                run.let_go(held)
        pause_ms = (run.clock_ns() - began) * 1e-6
        for worker in started:
            worker.gate = was_paused
            run.launch(worker)
        with run.lock:
            run.endings.check_all()
        return Receipt(
            kept=self.kept,
            moved=self.moved,
            drained=self.drained,
            dropped=0,
            paused=tuple(w.name for w in held),
            pause_ms=pause_ms,
            added_stages=tuple(self.added_stages),
            removed_stages=tuple(self.removed_stages),
            changed_stages=tuple(self.changed),
            added_edges=tuple(map(str, self.added)),
            removed_edges=tuple(map(str, self.removed)),
        )

    def _lanes(self, worker: StageWorker) -> list[Lane]:
        """Return the lanes of a worker that are taken away."""
        gone = {e.ends for e in self.removed}
        return [lane for lane in worker.out_lanes if (lane.source, lane.target) in gone]

    def _drain(self, producer: StageWorker, held: list[StageWorker], seconds: float) -> None:
        """Let consumers that still run process what a producer has queued on the edges that change."""
        lanes = [lane for lane in self._lanes(producer) if self.run.workers[lane.target] not in held]
        before = sum(lane.queued for lane in lanes)
        settled = lambda: self.run.aborting or all(lane.settled == lane.sent for lane in lanes)  # noqa: E731
        self.run.wait_until(settled, max(seconds, 0.0), poll=True)
        self.drained += max(0, before - sum(lane.queued for lane in lanes))

    def _switch(self) -> list[StageWorker]:
        """Change workers and lanes; every worker concerned stands still. Returns the workers to be started."""
        run = self.run
        # What can fail comes first, and is undone when it does: the old graph then runs on.
        specs = [self.new.stages[name] for name in self.added_stages if name not in self.returning]
        started = [StageWorker(spec, run, run.make_host(spec)) for spec in specs]
        self._move_stages()
        for worker in (back := [run.detached.pop(name) for name in self.returning]):
            worker.bond = "attached"
        run.workers.update({worker.name: worker for worker in (*started, *back)})
        old_lanes = [lane for w in run.workers.values() for lane in self._lanes(w)]
        fresh: dict[tuple[str, str], Lane] = {}
        for edge in self.added:
            assert edge.channel is not None
            fresh[edge.ends] = run.connect(edge.source, edge.target, edge.channel)
        for lane in old_lanes:
            self._take_away(lane, fresh)
        for lane in fresh.values():
            if run.workers[lane.source].ended:
                lane.close()
        for name in self.removed_stages:
            worker = run.workers.pop(name)
            if self.detaches and (worker.ended or not worker.finish_asked):
                worker.bond = "leaving"
                run.detached[name] = worker
            else:
                worker.draining = True
                run.retired += [] if worker.ended else [worker]
        run.graph = self.new
        run.endings.regroup()
        run.note("run.reconfigured", run.graph.name)
        return started

    def _move_stages(self) -> None:
        """Give changed stages their new substrates and settings; when one cannot move, those before it move back."""
        run, moved = self.run, []
        try:
            for name, (before, after) in self.changed.items():
                swap_host(run, run.find(name), after)
                moved.append((name, before))
        except Exception:
            for name, before in reversed(moved):
                swap_host(run, run.find(name), before)
            raise

    def _take_away(self, lane: Lane, fresh: dict[tuple[str, str], Lane]) -> None:
        """End one lane, and see to what is queued in it or waits to be sent on it."""
        ends = lane.source, lane.target
        producer, consumer = self.run.workers[lane.source], self.run.workers[lane.target]
        stays = lane.target not in self.removed_stages
        if lane.source in self.removed_stages:
            self.kept += lane.queued if stays else 0
            return  # its producer ends it, when it ends itself
        producer.out_lanes.remove(lane)
        waiting = [item for other, item in producer.outbox if other is lane]
        instead = [new for new in fresh.values() if new.source == lane.source]
        if ends in fresh:  # another channel between the same two: what waits to be sent goes on the new one
            self.kept += lane.queued + len(waiting)
            self._readdress(producer, lane, [fresh[ends]])
        elif not stays and instead and self.carries:
            for way, item in consumer.outbox:  # what the removed stage has in its hand came before what is carried
                if not way.offer(item):
                    way.push(item)
            consumer.outbox.clear()
            carried = _extract(consumer, lane)
            self.moved += len(carried) + len(waiting)
            for item in carried:
                for new, copy in self._copies(item, instead):
                    new.force(copy)
            self._readdress(producer, lane, instead)
        else:
            for item in waiting:
                lane.force(item)
            self._readdress(producer, lane, [])
            self.kept += lane.queued if stays else 0
            self.drained += 0 if stays else lane.queued
        lane.close()

    def _readdress(self, producer: StageWorker, lane: Lane, instead: list[Lane]) -> None:
        """Send what waits for `lane` on other lanes, in its place in the outbox."""
        pending = list(producer.outbox)
        producer.outbox.clear()
        for other, item in pending:
            producer.outbox.extend([(other, item)] if other is not lane else self._copies(item, instead))

    def _copies(self, item: Item, lanes: list[Lane]) -> list[tuple[Lane, Item]]:
        """Return the lanes that want an item, each with a copy of it.

        A lane whose filter raises gets none, by its producer's error policy.
        """
        wanting = []
        for lane in lanes:
            try:
                wanting += [lane] if lane.wants(item) else []
            except PipelineError as error:
                action = "stop" if self.run.workers[lane.source].config.on_error == "stop" else "skip"
                self.run.report(failure_of(lane.source, item, error, attempts=1, action=action), error)
        return [(lane, item if i == 0 else item.twin()) for i, lane in enumerate(wanting)]


def _extract(worker: StageWorker, lane: Lane) -> list[Item]:
    """Return what a parked worker has queued from one lane; the rest of its inbox keeps its order."""
    messages = []
    while worker.inbox.qsize():
        messages.append(worker.inbox.get())
    items = []
    for message in messages:
        if message is NUDGE or message[0] is not lane or message[1] is END:
            worker.inbox.put(message)
            continue
        items.append(lane.take(message[1]))
        lane.done += 1
    return items


def swap_host(run: "Run", worker: StageWorker, spec: StageSpec) -> Migration:
    """Give a worker that stands at a border other settings, or another host with the same state, where it needs one.

    When that fails the old host comes back.
    """
    began = run.clock_ns()
    worker.complete()
    old, was, host = worker.host, worker.spec, worker.host
    saved, digest = b"", ""
    if was.substrate != spec.substrate or was.config.isolation != spec.config.isolation:
        host = run.make_host(spec)
        if worker.opened:
            saved = old.checkpoint()
            digest = hashlib.sha256(saved).hexdigest()
            way = {"source": was.substrate_name, "target": spec.substrate_name, "sha256": digest}
            run.note("migration.left", worker.name, **way)
            old.close()
            try:
                _arrive(host, spec, saved, digest)
            except Exception:
                old.open(saved)
                raise
            run.note("migration.arrived", worker.name, **way)
    worker.spec, worker.config, worker.host = spec, spec.config, host
    host.spec = spec
    worker.throttle = run.readings.throttle_of(worker)
    return Migration(
        stage=worker.name,
        source=was.substrate_name,
        target=spec.substrate_name,
        state_bytes=len(saved),
        sha256=digest,
        pause_ms=(run.clock_ns() - began) * 1e-6,
    )


def _arrive(host: "Host", spec: StageSpec, saved: bytes, digest: str) -> None:
    """Open a host from a state, which must come back from it byte for byte."""
    host.open(saved)
    if (arrived := host.checkpoint()) != saved:
        host.close()
        raise PipelineError(
            f"the state of stage `{spec.name}` changed on its way to {spec.substrate_name}: "
            f"sha256 {digest} became {hashlib.sha256(arrived).hexdigest()}; it stays where it was"
        )
