"""How a run ends by itself: END travels along every edge after the last item.

The stages of a strongly connected part end together: when every edge into it has ended, its sources are exhausted, and
nothing is in flight inside (see the counters of `lanes`), its stages are asked to finish one after the other, what they
send then being processed too; at last all close, and END goes on to what follows. Stages that are detached do not
finish: they close their edges and wait.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .graph import components
from .lanes import Word
from .worker import StageWorker

if TYPE_CHECKING:
    from .run import RunCore


@dataclass(slots=True, eq=False)
class Part:
    """Stages that end together."""

    members: tuple[str, ...]
    finisher: int = -1
    """Which member is finishing; -1 before, len(members) after all have."""


class Endings:
    """Which stages end together, and how far each part is. Every call holds the run's lock."""

    def __init__(self, run: "RunCore") -> None:
        self._run = run
        self.part_of: dict[str, Part] = {}

    def regroup(self) -> None:
        """Find again which stages end together, and in which order; call after any change of edges."""
        run = self._run
        alive = {w.name: w for w in run.all_workers() if not w.ended and w.bond in ("attached", "leaving")}
        edges = [(lane.source, name) for name, w in alive.items() for lane in w.in_lanes]
        ahead = [e.ends for e in run.graph.edges if not e.feedback and e.channel is not None and e.channel.blocks]
        order = {n: i for i, group in enumerate(components(alive, ahead)) for n in group}
        before, self.part_of = self.part_of, {}
        for members in components(alive, edges):
            old = before.get(members[0])
            same = old is not None and set(old.members) == set(members)
            if all(alive[n].finished for n in members) and members[0] not in before:
                continue  # told to close already
            group = old if old is not None and same else Part(tuple(sorted(members, key=lambda n: order[n])))
            for name in members:
                self.part_of[name] = group
                alive[name].closing = alive[name].closing and same

    def is_closing(self, worker: StageWorker) -> bool:
        """Whether the part of a worker has begun to finish."""
        group = self.part_of.get(worker.name)
        return group is None or group.finisher >= 0

    def check_all(self) -> None:
        """Look at every part for one that can end; after a change of edges."""
        for name in list(self.part_of):
            self.check(name)

    def check(self, name: str) -> None:
        """Move a part towards its end if all its input has ended and nothing is in flight in it."""
        group = self.part_of.get(name)
        if group is None:
            return
        members = [self._run.find(n) for n in group.members]
        inside = []
        for worker in members:
            if not worker.exhausted and worker.bond == "attached":
                return
            for lane in worker.in_lanes:
                if lane.source not in group.members:
                    return
                inside.append(lane)
        for worker in members:
            worker.closing = True
        settled = [lane.settled for lane in inside]
        if settled != [lane.sent for lane in inside]:
            return
        group.finisher = max(group.finisher, 0)
        while group.finisher < len(members):
            member = members[group.finisher]
            if member.bond == "attached":
                if not member.finish_asked:
                    member.finish_asked = True
                    member.inbox.put((None, Word.FINISH))
                if not member.finished:
                    return
            group.finisher += 1
        for worker in members:
            del self.part_of[worker.name]
            if worker.bond == "attached":
                worker.inbox.put((None, Word.CLOSE))
            else:
                worker.bond = "told"
                worker.inbox.put((None, Word.DETACH))
