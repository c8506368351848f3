"""Regions of a graph that run on one side without a break: maximal, convex, and in an order in which they can run.

A region is convex when no path leaves it and comes back: it can then be run as a whole once its inputs are there.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from metalforge.hybrid.model.graph import OpGraph

__all__ = ["Region", "Side", "find_regions"]

Side: TypeAlias = Literal["npu", "software"]
Region: TypeAlias = tuple[Side, tuple[str, ...]]
"""A side and its nodes, in the graph's order."""


def find_regions(graph: OpGraph, sides: Mapping[str, Side]) -> tuple[Region, ...]:
    """Return regions in an order in which they can run; no two of one side could be joined.

    Nodes get a level that rises by one wherever an edge changes sides. Nodes of one level and side are convex together,
    since a path that leaves them never comes back down. Regions of different levels are then joined where that closes
    no circle between regions.
    """
    before = {
        node.name: {p.name for value in node.inputs if (p := graph.producer(value)) is not None} for node in graph.nodes
    }
    level: dict[str, int] = {}
    for node in graph.nodes:
        steps = [level[p] + (sides[p] != sides[node.name]) for p in before[node.name]]
        level[node.name] = max(steps, default=0)
    groups: dict[tuple[int, Side], list[str]] = {}
    for node in graph.nodes:
        groups.setdefault((level[node.name], sides[node.name]), []).append(node.name)
    regions = [set(names) for names in groups.values()]
    _join(regions, sides, before)
    return _in_order(graph, regions, sides, before)


def _join(regions: list[set[str]], sides: Mapping[str, Side], before: Mapping[str, set[str]]) -> None:
    """Join pairs of regions of one side in place, until no pair can be."""
    joined = True
    while joined:
        joined = False
        for i in range(len(regions)):
            for j in range(len(regions) - 1, i, -1):
                same = sides[next(iter(regions[i]))] == sides[next(iter(regions[j]))]
                if same and not _circle(regions, i, j, before):
                    regions[i] |= regions.pop(j)
                    joined = True


def _circle(regions: list[set[str]], i: int, j: int, before: Mapping[str, set[str]]) -> bool:
    """Whether a path between two regions leads through a third: joined, they would wait for each other."""
    of = {name: k for k, names in enumerate(regions) for name in names}
    after: dict[int, set[int]] = {k: set() for k in range(len(regions))}
    for name, producers in before.items():
        for producer in producers:
            if of[producer] != of[name]:
                after[of[producer]].add(of[name])
    return _reaches(after, i, j) or _reaches(after, j, i)


def _reaches(after: Mapping[int, set[int]], start: int, end: int) -> bool:
    """Whether a path of two or more edges leads from start to end."""
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


def _in_order(
    graph: OpGraph, regions: list[set[str]], sides: Mapping[str, Side], before: Mapping[str, set[str]]
) -> tuple[Region, ...]:
    """Return regions after all that they wait for."""
    position = {node.name: i for i, node in enumerate(graph.nodes)}
    waiting = sorted(regions, key=lambda names: min(position[name] for name in names))
    done: set[str] = set()
    ordered: list[Region] = []
    while waiting:
        ready = next(names for names in waiting if set().union(*(before[n] for n in names)) - names <= done)
        waiting.remove(ready)
        done |= ready
        ordered.append((sides[next(iter(ready))], tuple(sorted(ready, key=position.__getitem__))))
    return tuple(ordered)
