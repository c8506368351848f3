"""What the nodes of a cluster have: asked of each, in a process of its own there, without making anything of it."""

from typing import TYPE_CHECKING, Any

from metalforge.core.errors import PlacementError, SpecError

from .worker import NodeFacts, NodeWorker

if TYPE_CHECKING:
    from types import ModuleType

ASK_S = 60.0
LEVELS = ("portable", "v2", "v3", "v4")
"""Build levels of kernels, the plainest first."""


def live_nodes(ray: "ModuleType") -> list[dict[str, Any]]:
    """Return the nodes that are there, the head first."""
    alive = [one for one in ray.nodes() if one["Alive"]]
    return sorted(alive, key=lambda one: ("node:__internal_head__" not in one["Resources"], one["NodeID"]))


def look(ray: "ModuleType") -> list[NodeFacts]:
    """Return what each node has, the head first; all are asked at once.

    Raises
    ------
    PlacementError
        A node did not answer, or has another version of the package.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ask = ray.remote(_facts)
    nodes = live_nodes(ray)
    asked = [
        ask.options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(one["NodeID"], soft=False)).remote()
        for one in nodes
    ]
    try:
        found: list[NodeFacts] = ray.get(asked, timeout=ASK_S)
    except ray.exceptions.GetTimeoutError:
        silent = [
            one["NodeManagerHostname"]
            for one, answer in zip(nodes, asked, strict=True)
            if not ray.wait([answer], timeout=0)[0]
        ]
        raise PlacementError(
            f"{len(silent)} of {len(nodes)} nodes did not answer within {ASK_S:g} s: {', '.join(silent)}"
            "\nhint: their logs are in Ray's folder of temporary files on each"
        ) from None
    except ray.exceptions.RayError as error:
        raise PlacementError(
            f"a node of the cluster cannot run metalforge: {str(error).strip().splitlines()[-1]}"
            "\nhint: the same version must be installed on every node, for the same Python"
        ) from error
    versions = {facts.version for facts in found}
    if len(versions) > 1:
        raise PlacementError(f"the nodes have different versions of metalforge: {', '.join(sorted(versions))}")
    return found


def _facts() -> NodeFacts:
    return NodeWorker(".").facts()


def common_level(found: list[NodeFacts]) -> str:
    """Return the highest build level of the kernels that every node can run: chains may go on on any of them."""
    able = set.intersection(*(set(facts.levels) for facts in found))
    if not able:
        raise SpecError("no build level of the kernels runs on all nodes of the cluster: they differ in architecture")
    return max(able, key=LEVELS.index)
