r"""Experiment 018: the same campaign in the orderings A to E, one after another and alone, for the same seconds each.

`sequential` is one producer with screen and steering, as the published design ran its substrates: one at a time. The
orderings have two logical substrates, `cpu:0` and `cpu:1`; B has a scout on a smaller volume besides. Of every run:

    updates per second        over equal windows of its wall time, with Student's interval
    effective samples       sum over chains n / (2 tau_int) of |L| on the first volume, a second of wall time
    beta_c                  by reweighting of all its chains; pull = (beta_c - sequential's) / combined error
    utilisation             share of the time in which the stages of a substrate were busy

Those a *core second* divide by the processor time of the producers instead: what other work on the machine takes away
does not enter them. Energies are those of meters, or modelled and labelled so; the emulator's own time is a line of
its own and no ordering's cost. The steerer is the campaign's own and costs what it costs.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import hypot, inf, sqrt
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from scipy.stats import t as student

from metalforge.campaign import Budget, CampaignSpec, Running, Screening, Steering, WarmUpPolicy
from metalforge.campaign.analysis.transition import Transition, locate
from metalforge.campaign.orderings import ORDERINGS
from metalforge.campaign.running.campaign import Campaign
from metalforge.campaign.running.choosing import FEWEST, effective_samples
from metalforge.campaign.state import CampaignState
from metalforge.campaign.store.directory import JOURNAL
from metalforge.campaign.store.reading import read_journal
from metalforge.campaign.store.records import Record, Rows
from metalforge.lattice.campaign import Lattice
from metalforge.lattice.campaign.theory import lattice_of
from metalforge.native.engine import Dims
from metalforge.reservoir.metrics import Interval
from metalforge.statistics import NotLocated, gamma_method

from .protocol import Check, Progress, Result, ResultRow, Settings, experiment, row_of, words

SEQUENTIAL = "sequential"
SINGLE = "D in f32"
"""Ordering D with links in single precision, checked in double: the nearest there is to the design's DF64 and f64."""
WINDOWS = 6
"""Parts of a run over which its rate is averaged."""
REPLICAS = 100
SUBSTRATES = 2
EFFECTIVE = "effective_samples_per_s"


class OrderingPlan(NamedTuple):
    """What quick and full differ in."""

    target: Dims
    scout: Dims
    range: tuple[float, float]
    seconds: float
    flags: float
    """chi from which a configuration of the target is flagged: three quarters of its peak."""
    scout_flags: float
    """The same for ordering B, which flags on the smaller lattice."""
    visit: int
    warmup: WarmUpPolicy


QUICK = OrderingPlan(
    (4, 4, 4, 2), (2, 2, 2, 2), (4.95, 5.25), 2.0, 0.7, 0.19, 150, WarmUpPolicy(longest=60, shortest=20)
)
FULL = OrderingPlan(
    (8, 8, 8, 4), (4, 4, 4, 4), (5.6, 5.8), 30.0, 1.0, 0.28, 300, WarmUpPolicy(longest=200, shortest=40)
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategyOutcome:
    """One run: what its journal says, where beta_c is, and its rates."""

    name: str
    state: CampaignState
    found: Transition | None
    reason: str
    """Why there is no beta_c."""
    figures: Mapping[str, Interval]
    """Rates by their metric; cores are those that the producers had, on a busy machine fewer than they could use."""

    def __getitem__(self, metric: str) -> float:
        return self.figures[metric].value

    @property
    def utilisation(self) -> dict[str, float]:
        """How busy each substrate was in the run's last segment."""
        use = self.state.utilisation
        found: dict[str, float] = {}
        for stage in use.stages if use is not None else ():
            if stage.substrate is not None:
                found[stage.substrate] = found.get(stage.substrate, 0.0) + stage.utilisation
        return found

    @property
    def drift(self) -> float | None:
        """The largest difference of P or |L| that a check found; None without checks."""
        drifts = [max(found.largest[n] for n in ("plaquette", "polyakov")) for found in self.state.drift.values()]
        return max(drifts) if drifts else None

    @property
    def chosen(self) -> str:
        """What `auto` chose, and by which figures."""
        return next((f"{d.by}: {d.reason}" for d in reversed(self.state.decisions) if d.what == "ordering"), "")


def strategies(settings: Settings) -> dict[str, CampaignSpec]:
    """Return the spec of every strategy by name; they differ in ordering, producers, B's volumes, and one precision."""
    plan = QUICK if settings.quick else FULL
    base = CampaignSpec(
        name="018",
        seed=settings.seed,
        ordering="C",
        theory=Lattice(volumes=(plan.target,), beta_min=plan.range[0], beta_max=plan.range[1]),
        budget=Budget(seconds=plan.seconds),
        warmup=plan.warmup,
        steering=Steering(initial=4, visit=plan.visit),
        screening=Screening(chi=plan.flags, every=20, device="npu"),
        running=Running(producers=SUBSTRATES, checkpoint_s=3600.0),
    )
    replace = msgspec.structs.replace
    found = {SEQUENTIAL: replace(base, running=replace(base.running, producers=1))}
    for ordering in ORDERINGS:
        lattice, screening = lattice_of(base), base.screening
        if ordering == "B":
            lattice = replace(lattice, volumes=(plan.target, plan.scout))
            screening = replace(screening, chi=plan.scout_flags)
        found[ordering] = replace(base, ordering=ordering, theory=lattice, screening=screening)
    found[SINGLE] = replace(found["D"], theory=replace(lattice_of(base), precision="f32"))
    found["auto"] = replace(base, ordering="auto")
    return found


def run_strategy(name: str, spec: CampaignSpec, directory: Path) -> StrategyOutcome:
    """Run one campaign to its end and measure it."""
    with Campaign.open(spec, directory, command=("metalforge", "experiment", "run", "018")) as campaign:
        state = campaign.run()
    found, reason = None, ""
    try:
        found = locate(state.points(spec.theory.systems[0]), seed=spec.seed, n_bootstrap=REPLICAS)
    except NotLocated as problem:
        reason = str(problem).splitlines()[0]
    core_s = sum(chain.seconds for chain in state.chains.values())
    cores = core_s / state.seconds if state.seconds else 0.0
    effective = _effective(state)
    figures = {
        "updates_per_s": _rate(read_journal(directory / JOURNAL, Record).records, state),
        "updates_per_core_s": Interval.around(state.trajectories / core_s if core_s else 0.0),
        EFFECTIVE: effective,
        "effective_samples_per_core_s": Interval.around(effective.value / cores if cores else 0.0),
        "cores": Interval.around(cores),
    }
    return StrategyOutcome(name=name, state=state, found=found, reason=reason, figures=figures)


def _rate(records: Sequence[Record], state: CampaignState) -> Interval:
    """Return updates per second with Student's interval over `WINDOWS` equal parts of the run."""
    began, lasted = state.opened.at, state.seconds
    rows = [(record.at, len(next(iter(record.columns.values())))) for record in records if isinstance(record, Rows)]
    if not rows or lasted <= 0:
        return Interval.around(0.0, inf)
    at, counts = np.array(rows).T
    updates, _ = np.histogram(at, bins=WINDOWS, range=(began, began + lasted), weights=counts)
    half = student.ppf(0.975, WINDOWS - 1) * updates.std(ddof=1) / sqrt(WINDOWS) * WINDOWS / lasted
    return Interval.around(state.trajectories / lasted, float(half))


def _effective(state: CampaignState) -> Interval:
    """Return effective samples of |L| a second with the interval that the errors of tau_int make."""
    variance = 0.0
    for point in state.points(state.spec.theory.systems[0]):
        if len(point.order) >= FEWEST and np.ptp(point.order) > 0:
            tau = gamma_method(point.order)
            variance += (len(point.order) / (2 * tau.tau_int) * tau.tau_int_error / tau.tau_int) ** 2
    if state.seconds <= 0:
        return Interval.around(0.0, inf)
    return Interval.around(effective_samples(state) / state.seconds, 1.96 * sqrt(variance) / state.seconds)


def pull(outcome: StrategyOutcome, other: StrategyOutcome) -> float | None:
    """Return how many combined errors lie between the beta_c of two runs; None where one has none."""
    if outcome.found is None or other.found is None:
        return None
    return (outcome.found.result - other.found.result) / hypot(outcome.found.error, other.found.error)


PULL = 3.0
"""Combined errors within which two runs are called consistent."""


def _line(outcome: StrategyOutcome, base: StrategyOutcome) -> tuple[str, ...]:
    found, pulled, drift = outcome.found, pull(outcome, base), outcome.drift
    name = outcome.name if not outcome.chosen else f"{outcome.name} ({outcome.chosen[0]})"
    uses = outcome.utilisation
    return (
        name,
        str(outcome.state.trajectories),
        _with_half(outcome.figures["updates_per_s"], ".0f"),
        _with_half(outcome.figures[EFFECTIVE], ".1f"),
        f"{outcome['cores']:.2f}",
        f"{outcome['updates_per_core_s']:.0f}",
        f"{outcome['effective_samples_per_core_s']:.1f}",
        "not located" if found is None else f"{found.result:.4f} +- {found.error:.4f}",
        "" if pulled is None or outcome is base else f"{pulled:+.1f}",
        ", ".join(f"{where} {uses[where]:.0%}" for where in sorted(uses)),
        str(outcome.state.checked),
        "" if drift is None else f"{drift:.1e}",
    )


def _findings(outcomes: Mapping[str, StrategyOutcome]) -> Iterator[str]:
    base, both, scout = (outcomes[name] for name in (SEQUENTIAL, "C", "B"))
    updates, work = (both[metric] / base[metric] for metric in ("updates_per_s", "updates_per_core_s"))
    yield from words("018.throughput", updates=updates, both=both, base=base, work=work)
    for name, what in (("A", "the second core checks flagged configurations"), ("D", "it checks every one")):
        here = outcomes[name]
        ratio = here[EFFECTIVE] / both[EFFECTIVE] if both[EFFECTIVE] else 0.0
        yield from words("018.checked", name=name, what=what, checks=here.state.checked, ratio=ratio)
    single, double = outcomes[SINGLE].drift, outcomes["D"].drift
    if single is not None and double is not None:
        yield from words("018.drift", single=single, double=double)
    first = scout.state.spec.theory.systems[0]
    large = [chain for chain in scout.state.chains.values() if chain.system == first]
    betas = sorted({round(chain.coordinate, 4) for chain in large})
    yield from words(
        "018.scout",
        large=sum(chain.rows for chain in large),
        updates=scout.state.trajectories,
        places=len(betas),
        betas=", ".join(f"{beta:g}" for beta in betas[:8]),
    )
    if (ended := outcomes["E"].state.finished) is not None:
        slept = "went to sleep" if ended.stopped_by == "asleep" else "did not sleep"
        yield from words("018.sleep", slept=slept, ended=ended)
    yield from words("018.end", chosen=outcomes["auto"].chosen or "nothing: it was interrupted")
    for outcome in outcomes.values():
        if outcome.found is None:
            yield from words("018.missing", outcome=outcome)


def _energies(outcomes: Mapping[str, StrategyOutcome]) -> list[str]:
    """Return the ledgers in words: every source apart, never a sum of two."""
    said: dict[str, list[str]] = {}
    for outcome in outcomes.values():
        for (where, source), entry in sorted(outcome.state.energy.items()):
            if entry.energy is not None:
                said.setdefault(f"energy of {where}, {source}", []).append(f"{outcome.name} {entry.energy}")
            elif entry.emulation_s is not None:
                text = f"emulation on {where}, processor time in no ordering's cost"
                said.setdefault(text, []).append(f"{outcome.name} {entry.emulation_s:.2f} s")
            else:
                said.setdefault(f"energy of {where}: {source}, {entry.reason}", []).append(outcome.name)
    return [f"{text}: {', '.join(parts)}" for text, parts in said.items()]


def checks(outcomes: Mapping[str, StrategyOutcome]) -> Iterator[Check]:
    """Give what was asked, what came, and whether it holds."""
    base, both, every, flagged = (outcomes[name] for name in (SEQUENTIAL, "C", "D", "A"))
    pulls = {name: pull(o, base) for name, o in outcomes.items() if name != SEQUENTIAL}
    known = {name: value for name, value in pulls.items() if value is not None}
    yield (
        f"beta_c of every strategy within {PULL:g} errors of the sequential run's",
        ", ".join(f"{name} {value:+.1f}" for name, value in known.items()) or "not located",
        bool(known) and all(abs(value) <= PULL for value in known.values()),
    )
    faster = both["updates_per_s"] / base["updates_per_s"]
    came = f"{faster:.2f} times, on {both['cores']:.2f} cores against {base['cores']:.2f}"
    yield "two producers make more updates per second than one", came, faster > 1
    missed = sum(chain.rows for chain in every.state.chains.values()) - every.state.checked
    yield "D checks every configuration", f"{missed} missed", missed == 0
    made = flagged.state.checks
    seen = {(name, one.step) for name, log in flagged.state.chains.items() for one in log.screened if one.flagged}
    right = all((check.chain, check.step) in seen for check in made)
    yield "A checks flagged configurations only", f"{len(made)} checks", right


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
    load = words("018.load", before=before, after=busy())
    base, plan = outcomes[SEQUENTIAL], QUICK if settings.quick else FULL
    rows = [row for outcome in outcomes.values() for row in _rows(outcome, base, plan)]
    said = (*words("018.claims"), *_findings(outcomes), *_energies(outcomes), *load)
    table = (tuple(words("018.columns")), *(_line(outcome, base) for outcome in outcomes.values()))
    return Result.of(rows, table, said, checks(outcomes))


def busy() -> str:
    """Return how busy the machine is, in words."""
    if not hasattr(os, "getloadavg"):
        return "unknown"
    return f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def _rows(outcome: StrategyOutcome, base: StrategyOutcome, plan: OrderingPlan) -> Iterator[ResultRow]:
    task = f"{'x'.join(map(str, plan.target))}, {plan.seconds:g} s"
    of = partial(row_of, task, outcome.name, precision=lattice_of(outcome.state.spec).precision, less=False)
    yield from (of(metric, figure, base[metric]) for metric, figure in outcome.figures.items())
    if outcome.found is not None:
        beta_c, error, usual = outcome.found.result, outcome.found.error, base.found or outcome.found
        # A spread of n replicas is known to 1 / sqrt(2 (n - 1)) of itself.
        half = 1.96 * error / sqrt(2 * (REPLICAS - 1))
        yield of("beta_c_error", Interval.around(error, half), usual.error, less=True)
        yield of("beta_c", Interval.around(beta_c, 1.96 * error), usual.result)
    pulled = pull(outcome, base)
    if pulled is not None and outcome is not base:
        yield of("beta_c_pull", Interval.around(pulled, 1.96))
    for name, share in sorted(outcome.utilisation.items()):
        yield of(f"utilisation {name}", Interval.around(share), 1.0)
    yield of("checks", Interval.around(outcome.state.checked))
    if outcome.drift is not None:
        yield of("largest_drift", Interval.around(outcome.drift), less=True)
    for (where, source), entry in sorted(outcome.state.energy.items()):
        if entry.energy is not None:
            yield of(f"energy_J {where} {source}", Interval.around(entry.energy.value), less=True)
        elif entry.emulation_s is not None:
            yield of(f"emulation_s {where}", Interval.around(entry.emulation_s), less=True)


def _with_half(figure: Interval, form: str) -> str:
    return f"{figure.value:{form}} +- {figure.high - figure.value:{form}}"
