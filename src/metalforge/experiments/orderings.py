r"""Experiment 018: the same campaign in the orderings A to E, one after another and alone, for the same seconds each.

`sequential` is one producer with screen and steering, as the origin ran its substrates: one at a time. The orderings
have two logical substrates, `cpu:0` and `cpu:1`; B has a scout on a smaller volume besides. Of every run:

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
from math import sqrt
from pathlib import Path

from .ordering_runs import REPLICAS, SEQUENTIAL, Outcome, Plan, plan_of, pull, run_strategy, strategies
from .ordering_words import checks, lines, words
from .protocol import Experiment, Progress, Result, Row, Settings, register

__all__ = ["EXPERIMENT"]


def run(settings: Settings, progress: Progress) -> Result:
    """Return the rows of every strategy; the reference is the sequential run."""
    specs = strategies(settings)
    before = busy()
    outcomes: dict[str, Outcome] = {}
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
    return Result(
        rows=tuple(rows),
        table=lines(outcomes),
        words=(*words(outcomes), load),
        checks=checks(outcomes),
    )


def busy() -> str:
    """Return how busy the machine is, in words."""
    if not hasattr(os, "getloadavg"):
        return "unknown"
    return f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def _rows(outcome: Outcome, base: Outcome, plan: Plan) -> list[Row]:
    task = f"{'x'.join(map(str, plan.target))}, {plan.seconds:g} s"

    def row(metric: str, value: float, half: float, reference: float, *, more_is_better: bool = True) -> Row:
        return Row(
            task=task,
            approach=outcome.name,
            precision=outcome.state.spec.lattice.precision,
            refit=False,
            metric=metric,
            value=value,
            low=value - half,
            high=value + half,
            reference=reference,
            gap=(reference - value) * (1 if more_is_better else -1) + 0.0,
        )

    rows = [
        row("updates_per_s", *outcome.rate, base.rate[0]),
        row("updates_per_core_s", outcome.core_rate, 0.0, base.core_rate),
        row("effective_samples_per_s", *outcome.effective, base.effective[0]),
        row("effective_samples_per_core_s", outcome.effective_core_rate, 0.0, base.effective_core_rate),
        row("cores", outcome.cores, 0.0, base.cores),
    ]
    if outcome.found is not None:
        # A spread of n replicas is known to 1 / sqrt(2 (n - 1)) of itself.
        half = 1.96 * outcome.found.error / sqrt(2 * (REPLICAS - 1))
        error = base.found.error if base.found is not None else outcome.found.error
        rows.append(row("beta_c_error", outcome.found.error, half, error, more_is_better=False))
        between = base.found.beta_c if base.found is not None else outcome.found.beta_c
        rows.append(row("beta_c", outcome.found.beta_c, 1.96 * outcome.found.error, between))
    pulled = pull(outcome, base)
    if pulled is not None and outcome is not base:
        rows.append(row("beta_c_pull", pulled, 1.96, 0.0))
    rows += [row(f"utilisation {name}", share, 0.0, 1.0) for name, share in sorted(outcome.utilisation.items())]
    rows.append(row("checks", float(len(outcome.state.checks)), 0.0, 0.0))
    if outcome.drift is not None:
        rows.append(row("largest_drift", outcome.drift, 0.0, 0.0, more_is_better=False))
    for (where, source), entry in sorted(outcome.state.energy.items()):
        if entry.energy is not None:
            rows.append(row(f"energy_J {where} {source}", entry.energy.value, 0.0, 0.0, more_is_better=False))
        elif entry.emulation_s is not None:
            rows.append(row(f"emulation_s {where}", entry.emulation_s, 0.0, 0.0, more_is_better=False))
    return rows


EXPERIMENT = register(
    Experiment(
        name="018",
        question="What does each ordering of the same campaign give, on this machine and in the same time?",
        run=run,
    )
)
