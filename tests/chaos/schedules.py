"""Seeded schedules of random graphs: what `build` accepts ends by itself, with every item accounted for."""

import random

from metalforge.core.errors import MetalforgeError
from reference.pipelines import accepted, ledger_problems, random_graph


def attack(seed: int) -> tuple[str, list[str]]:
    """Run the graph and the schedule of a seed; return `refused` or `ran`, and what was wrong with the run."""
    graph = random_graph(random.Random(seed))
    pipeline = accepted(graph)
    if pipeline is None:
        return "refused", []
    try:
        run = pipeline.run("inline", seed=seed)
    except MetalforgeError as error:
        return "ran", [f"seed {seed}: {type(error).__name__}: {error}"]
    problems = ledger_problems(run, {name: spec.stage for name, spec in graph.stages.items()})
    ended = [] if run.status == "ended" else [f"is {run.status}"]
    return "ran", [f"seed {seed}: {problem}" for problem in (*ended, *problems)]
