"""Search, then compile, then learn on: the three phases in a row, and the files they leave."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from metalforge.core import BriefRepr, Measured, Modelled, naming, replacing
from metalforge.hybrid.deployed import deploy
from metalforge.hybrid.esn.network import HybridEsn
from metalforge.reservoir import EsnEngine
from metalforge.substrates import DeviceProfile, Program, wire
from metalforge.substrates import profile as find_profile

from .choosing import Finalist, SearchBudget, choose, points
from .evaluate import Baselines, baselines, score
from .fine_tuning import FineTuned, fine_tune
from .space import Parameters, Space
from .study import Progress, StudyResult, run_study
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Deployment(BriefRepr):
    """A search's network, ready to run: `esn` on an emulated device, with its `programs` as they are written."""

    report: SearchReport
    esn: HybridEsn
    programs: tuple[Program, ...]
    study: StudyResult
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
    origin = (
        ("made by", "metalforge search"),
        ("task", about.name),
        ("precision", chosen.precision),
        ("test NRMSE", f"{best.error_int4:.6g}"),
    )
    programs = tuple(replace(program, provenance=origin) for program in esn.programs.programs)
    esn = esn.with_weights(replace(esn.weights, features=about.features, heads=about.layout))
    found = Deployment(report=report, esn=esn, programs=programs, study=study, files=())
    return found if out is None else replace(found, files=_write(out, found, about, chip))


def _write(out: Path, found: Deployment, task: SearchTask, chip: DeviceProfile) -> tuple[Path, ...]:
    """Write everything to a folder, which is made where there is none; return the files."""
    from .plot import plot_pareto

    report = found.report
    with naming(out, "made"):
        out.mkdir(parents=True, exist_ok=True)
    files = [out / "weights.safetensors"]
    target = "step" if task.training.each_step else "series"
    deploy(found.esn, files[0], labels=task.labels, target=target, provenance=dict(found.programs[0].provenance))
    for program in found.programs:
        files.append(out / f"{program.name}.mfp")
        wire.save(program, files[-1])
    files.append(out / "report.json")
    with replacing(files[-1]) as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(report), indent=2))
    chosen = next(f for f in report.finalists if f.parameters == report.best.params)
    title = f"{report.task}: {report.candidates} candidates"
    for suffix in (".png", ".svg"):
        files.append(out / f"pareto{suffix}")
        shown = points(found.study.complete, task.inputs, PLOT_PRECISION, chip)
        plot_pareto(files[-1], shown, report.finalists, chosen, title=title)
    return tuple(files)
