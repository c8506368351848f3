"""Nodes that can run without a break: regions of one side, maximal, convex, and in an order in which they can run.

A region is convex when no path leaves it and comes back: it can then be run as a whole once its inputs are there.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

__all__ = ["find_regions"]

SideT = TypeVar("SideT", bound=str)


def find_regions(
    before: Mapping[str, Collection[str]], sides: Mapping[str, SideT]
) -> tuple[tuple[SideT, tuple[str, ...]], ...]:
    """Return regions with their side, in an order in which they can run; no two of one side could be joined.

    `before` has the nodes that each waits for, itself in an order in which they can run. Nodes get a level that rises
    by one wherever an edge changes sides. Nodes of one level and side are convex together, since a path that leaves
    them never comes back down. Regions of different levels are then joined where that closes no circle.
    """
    level: dict[str, int] = {}
    groups: dict[tuple[int, SideT], list[str]] = {}
    for name, producers in before.items():
        level[name] = max((level[p] + (sides[p] != sides[name]) for p in producers), default=0)
        groups.setdefault((level[name], sides[name]), []).append(name)
    regions = _joined(list(groups.values()), sides, before)
    position = {name: i for i, name in enumerate(before)}
    waiting = sorted(
        (sorted(names, key=position.__getitem__) for names in regions), key=lambda names: position[names[0]]
    )
    done: set[str] = set()
    ordered: list[tuple[SideT, tuple[str, ...]]] = []
    while waiting:
        ready = next(names for names in waiting if set().union(*(before[n] for n in names)) <= done.union(names))
        waiting.remove(ready)
        done.update(ready)
        ordered.append((sides[ready[0]], tuple(ready)))
    return tuple(ordered)


def _joined(
    regions: list[list[str]], sides: Mapping[str, SideT], before: Mapping[str, Collection[str]]
) -> list[list[str]]:
    """Return regions with pairs of one side joined, until no pair can be."""
    i = 0
    while i < len(regions):
        after = _edges(regions, before)
        for j in range(len(regions) - 1, i, -1):
            same = sides[regions[i][0]] == sides[regions[j][0]]
            if same and not _around(after, i, j) and not _around(after, j, i):
                regions[i] += regions.pop(j)
                i = -1  # what could not be joined before may be now
                break
        i += 1
    return regions


def _edges(regions: Sequence[Sequence[str]], before: Mapping[str, Collection[str]]) -> list[set[int]]:
    """Return for every region those that wait for it."""
    of = {name: k for k, names in enumerate(regions) for name in names}
    after: list[set[int]] = [set() for _ in regions]
    for name, producers in before.items():
        for producer in producers:
            if of[producer] != of[name]:
                after[of[producer]].add(of[name])
    return after


def _around(after: Sequence[set[int]], start: int, end: int) -> bool:
    """Whether a path between two regions leads through a third: joined, they would wait for each other."""
    waiting = [k for k in after[start] if k != end]
    seen = set(waiting)
    while waiting:
        for k in after[waiting.pop()]:
            if k == end:
                return True
            if k not in seen:
                seen.add(k)
                waiting.append(k)
    return False
