r"""Experiment 018: the same campaign in the orderings A to E, one after another and alone, for the same seconds each.

`sequential` is one producer with screen and steering, as the published design ran its substrates: one at a time. The
orderings have two logical substrates, `cpu:0` and `cpu:1`; B has a scout on a smaller volume besides. Of every run:

    updates a second        over equal windows of its wall time, with Student's interval
    effective samples       sum over chains n / (2 tau_int) of |L| on the first volume, a second of wall time
    beta_c                  by reweighting of all its chains; pull = (beta_c - sequential's) / combined error
    utilisation             share of the time in which the stages of a substrate were busy

Those a *core second* divide by the processor time of the producers instead: what other work on the machine takes away
does not enter them. Energies are those of meters, or modelled and labelled so; the emulator's own time is a line of
its own and no ordering's cost. The steerer is the campaign's own and costs what it costs.
"""

import os
import tempfile
from collections.abc import Iterator
from math import sqrt
from pathlib import Path

from .ordering_runs import REPLICAS, SEQUENTIAL, OrderingPlan, StrategyOutcome, plan_of, pull, run_strategy, strategies
from .ordering_words import checks, lines, words
from .protocol import Figure, Progress, Result, ResultRow, Settings, exactly, experiment, row_of

__all__ = ["run"]


@experiment("018", "What does each ordering of the same campaign give, on this machine and in the same time?")
def run(settings: Settings, progress: Progress) -> Result:
    """Return the rows of every strategy; the reference is the sequential run."""
    specs = strategies(settings)
    before = busy()
    outcomes: dict[str, StrategyOutcome] = {}
    with tempfile.TemporaryDirectory(prefix="metalforge-018-") as folder:
        for i, (name, spec) in enumerate(specs.items()):
            progress(i, len(specs), f"{name}, {spec.budget.seconds:g} s")
            outcomes[name] = run_strategy(name, spec, Path(folder) / name)
    load = (
        f"load of the machine before the first run {before}, after the last {busy()}: where it is above the number of "
        "cores, others computed too, and rates by the clock are a share of the machine; those by core seconds are not"
    )
    base, plan = outcomes[SEQUENTIAL], plan_of(settings)
    rows = [row for outcome in outcomes.values() for row in _rows(outcome, base, plan)]
    return Result.of(rows, lines(outcomes), (*words(outcomes), load), checks(outcomes))


def busy() -> str:
    """Return how busy the machine is, in words."""
    if not hasattr(os, "getloadavg"):
        return "unknown"
    return f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def _rows(outcome: StrategyOutcome, base: StrategyOutcome, plan: OrderingPlan) -> Iterator[ResultRow]:
    task = f"{'x'.join(map(str, plan.target))}, {plan.seconds:g} s"
    precision = outcome.state.spec.lattice.precision

    def of(metric: str, figure: Figure, reference: float = 0.0, *, less: bool = False) -> ResultRow:
        return row_of(task, outcome.name, metric, figure, reference, precision=precision, less=less)

    yield of("updates_per_s", _around(*outcome.rate), base.rate[0])
    yield of("updates_per_core_s", exactly(outcome.core_rate), base.core_rate)
    yield of("effective_samples_per_s", _around(*outcome.effective), base.effective[0])
    yield of("effective_samples_per_core_s", exactly(outcome.effective_core_rate), base.effective_core_rate)
    yield of("cores", exactly(outcome.cores), base.cores)
    if outcome.found is not None:
        beta_c, error, usual = outcome.found.beta_c, outcome.found.error, base.found or outcome.found
        # A spread of n replicas is known to 1 / sqrt(2 (n - 1)) of itself.
        half = 1.96 * error / sqrt(2 * (REPLICAS - 1))
        yield of("beta_c_error", _around(error, half), usual.error, less=True)
        yield of("beta_c", _around(beta_c, 1.96 * error), usual.beta_c)
    pulled = pull(outcome, base)
    if pulled is not None and outcome is not base:
        yield of("beta_c_pull", _around(pulled, 1.96))
    for name, share in sorted(outcome.utilisation.items()):
        yield of(f"utilisation {name}", exactly(share), 1.0)
    yield of("checks", exactly(len(outcome.state.checks)))
    if outcome.drift is not None:
        yield of("largest_drift", exactly(outcome.drift), less=True)
    for (where, source), entry in sorted(outcome.state.energy.items()):
        if entry.energy is not None:
            yield of(f"energy_J {where} {source}", exactly(entry.energy.value), less=True)
        elif entry.emulation_s is not None:
            yield of(f"emulation_s {where}", exactly(entry.emulation_s), less=True)


def _around(value: float, half: float) -> Figure:
    return Figure(value, value - half, value + half)
