"""Search, then compile, then learn on: the three phases in a row, and the files they leave."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from metalforge.core import Measured, Modelled, naming, replacing
from metalforge.hybrid.deployed import deploy
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.reservoir import EsnEngine
from metalforge.substrates import DeviceProfile, wire
from metalforge.substrates import profile as find_profile

from .candidates import Baselines, Parameters, Space, baselines, score
from .choosing import Finalist, FineTuned, Point, SearchBudget, choose, fine_tune, points
from .study import Progress, run_study
from .tasks import SearchTask, search_task

PLOT_PRECISION = "W4A8"
"""Software candidates are shown at the price that they would have at this precision."""


class Best(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The chosen candidate: NRMSE on test data that no phase has seen, in software and on the chip, and its price."""

    params: Parameters
    error: float
    error_int4: float
    latency: Modelled
    energy: Modelled


class SearchReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a search found, as it is written beside its files."""

    task: str
    profile: str
    candidates: int
    pruned: int
    new: int
    """Candidates of this run; the others come from the file."""
    seconds: Measured
    best: Best
    precision: str
    tolerance: float
    within_tolerance: bool
    baselines: Baselines
    finalists: tuple[Finalist, ...]
    fine_tuned: FineTuned | None = None

    @property
    def rate(self) -> Measured:
        """Candidates a second."""
        return Measured(value=self.candidates / self.seconds.value, unit="Hz", how=self.seconds.how)


class Deployment(NamedTuple):
    """A search's network on an emulated device, ready to run, what was found, and the files that were written."""

    report: SearchReport
    esn: HybridEsn
    files: tuple[Path, ...]


def search_network(
    task: str | SearchTask,
    *,
    trials: int = 1000,
    space: Space | None = None,
    seed: int = 1,
    storage: Path | None = None,
    profile: DeviceProfile | str = "akd1000-published",
    budget: SearchBudget = SearchBudget(),  # noqa: B008  frozen
    tolerance: float = 0.1,
    finalists: int = 8,
    learn_on: bool = False,
    out: Path | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    on_finalist: Callable[[Finalist], None] | None = None,
) -> Deployment:
    """Return the network that a search chose, compiled and scored on data that no phase has seen.

    `storage` is an SQLite file that a search is kept in and goes on from. With `learn_on` the readout learns on the
    device from the validation part as a stream. `out` is a folder for the weights, programs, report and plot;
    `metalforge.hybrid.load(out)` takes raw inputs.
    """
    chip = find_profile(profile)
    about = search_task(task, seed=seed) if isinstance(task, str) else task
    study = run_study(about, trials=trials, space=space, seed=seed, storage=storage, threads=threads, progress=progress)
    choice = choose(
        study, about, chip, seed=seed, budget=budget, tolerance=tolerance, count=finalists, progress=on_finalist
    )
    chosen, esn, tuned = choice.best, choice.esn, None
    best = Best(
        params=chosen.parameters,
        error=score(choice.software.output, EsnEngine(choice.software).run(about.test.inputs), about.test),
        error_int4=score(esn.weights.output, esn.states(about.test.inputs), about.test),
        latency=chosen.latency,
        energy=chosen.energy,
    )
    if learn_on:
        tuned, weights = fine_tune(esn, chosen.parameters, about.training, about.validation, about.test, chip)
        esn = esn.with_weights(weights)
    report = SearchReport(
        task=about.name,
        profile=chip.name,
        candidates=len(study.finished),
        pruned=len(study.finished) - len(study.complete),
        new=study.new,
        seconds=study.seconds,
        best=best,
        precision=chosen.precision,
        tolerance=tolerance,
        within_tolerance=choice.within_tolerance,
        baselines=baselines(about, seed=seed),
        finalists=choice.finalists,
        fine_tuned=tuned,
    )
    esn = esn.with_weights(replace(esn.weights, features=about.features, heads=about.layout))
    files = (
        ()
        if out is None
        else _write(out, report, esn, about, points(study.complete, len(about.features), PLOT_PRECISION, chip))
    )
    return Deployment(report, esn, files)


def _write(
    out: Path, report: SearchReport, esn: HybridEsn, task: SearchTask, candidates: Sequence[Point]
) -> tuple[Path, ...]:
    """Write everything to a folder, which is made where there is none; return the files."""
    from .plot import plot_pareto

    with naming(out, "made"):
        out.mkdir(parents=True, exist_ok=True)
    origin = {
        "made by": "metalforge search",
        "task": report.task,
        "precision": report.precision,
        "test NRMSE": f"{report.best.error_int4:.6g}",
    }
    files = [out / "weights.safetensors"]
    target = "step" if task.training.each_step else "series"
    deploy(esn, files[0], labels=task.labels, target=target, provenance=origin)
    for program in esn.programs.programs:
        files.append(out / f"{program.name}.mfp")
        wire.save(replace(program, provenance=tuple(origin.items())), files[-1])
    files.append(out / "report.json")
    with replacing(files[-1]) as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(report), indent=2))
    for suffix in (".png", ".svg"):
        files.append(out / f"pareto{suffix}")
        plot_pareto(files[-1], candidates, report)
    return tuple(files)
