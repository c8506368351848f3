"""Phase 1: a task and a space go in, evaluated candidates come out, in batches over threads.

Two batches are under way at a time: while the kernels evaluate one, Optuna suggests the next and the file takes in the
one before, on the interpreter that the kernels do not need. Results are told in the order in which they were asked, so
a search is the same for any number of threads.

`StudyBook` is Optuna behind ask and tell (TPE, a median pruner, an SQLite file that a search goes on from). Suggestions
come from a study in memory. Finished trials are copied to the file batch by batch, one transaction a trial;
asking the file itself would take ten. What is interrupted loses the batch in flight and nothing else.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.trial import Trial, TrialState

from metalforge.core import Measured, SpecError, one_thread, require_at_least
from metalforge.native import thread_count

from .candidates import RUNGS, Candidate, Parameters, Space
from .tasks import SearchTask

STUDY = "metalforge-search"
STARTUP = 100
"""Random trials before TPE has something to go by."""
IDENTITY, SECONDS = "metalforge:identity", "metalforge:seconds"
OVER = (TrialState.COMPLETE, TrialState.PRUNED)


class FinishedTrial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trial that is over: its point, and its error unless it was pruned."""

    number: int
    parameters: Parameters
    error: float | None


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna's log lines and its notes about experimental options away from the user's terminal."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)


class StudyBook:
    """One study: `ask` for points, `report` rungs, `tell` results; kept in a file where one is given."""

    def __init__(self, task: SearchTask, space: Space, seed: int, path: Path | None = None) -> None:
        self._space = _distributions(space, task.outputs)
        # Two searches may share a file only if these agree.
        identity = {"task": f"{task.name}/{task.seed}", "space": space, "seed": seed, "rungs": RUNGS}
        self._file = None if path is None else _opened(path, identity)
        saved = None if self._file is None else self._file[1]
        kept = [] if saved is None else [t for t in saved.trials if t.state in OVER]
        # A search that goes on must not draw again what it drew at its start: another seed for another beginning.
        sampler = optuna.samplers.TPESampler(
            seed=seed + 1_000_003 * len(kept), multivariate=True, n_startup_trials=STARTUP
        )
        pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP // 2, n_warmup_steps=0)
        self._study = optuna.create_study(sampler=sampler, pruner=pruner)
        self._study.add_trials(kept)
        self._unsaved: list[int] = []
        self.earlier_seconds = 0.0 if saved is None else float(saved.user_attrs.get(SECONDS, 0.0))
        """What earlier runs on this file took."""

    def ask(self, count: int) -> list[tuple[Trial, Parameters]]:
        """Return so many new points."""
        asked = [self._study.ask(self._space) for _ in range(count)]
        return [(trial, msgspec.convert(trial.params, Parameters)) for trial in asked]

    def report(self, trial: Trial, error: float) -> bool:
        """Record the error after the first rung; return whether the candidate shall be given up."""
        if error == float("inf"):
            return True  # diverged: not a number that a median should see
        trial.report(error, 0)
        return trial.should_prune()

    def tell(self, trial: Trial, error: float | None) -> None:
        """Record the error on all the data; None for a candidate that was given up, as one that diverged is."""
        if error is None or error == float("inf"):
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            trial.report(error, len(RUNGS) - 1)
            self._study.tell(trial, error)
        self._unsaved.append(trial.number)

    def finished(self) -> list[FinishedTrial]:
        """Return every trial that is over, those of earlier runs first."""
        return [
            FinishedTrial(
                number=t.number,
                parameters=msgspec.convert(t.params, Parameters),
                error=t.value if t.state == TrialState.COMPLETE else None,
            )
            for t in self._study.get_trials(deepcopy=False, states=OVER)
        ]

    def save(self, seconds: float) -> None:
        """Copy to the file what it does not have yet, and the seconds that this run has taken."""
        if self._file is None:
            return
        storage, saved = self._file
        trials = self._study.get_trials(deepcopy=False)
        while self._unsaved:  # one by one: what an interrupt leaves is saved by the next call
            storage.remove_session()  # an interrupt may have left one in the middle of something
            saved.add_trial(trials[self._unsaved[0]])
            del self._unsaved[0]
        saved.set_user_attr(SECONDS, self.earlier_seconds + seconds)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            _close(self._file[0])


def _close(storage: optuna.storages.RDBStorage) -> None:
    storage.remove_session()
    storage.engine.dispose()


def _opened(path: Path, identity: dict[str, object]) -> tuple[optuna.storages.RDBStorage, optuna.Study]:
    """Return a file and its study, which is made where there is none; raises where it holds something else."""
    if not path.parent.is_dir():
        raise SpecError(f"{path}: there is no folder {path.parent}")
    if path.exists() and not path.is_file():
        raise SpecError(f"{path}: not a regular file")  # SQLite would wait for the other end of a pipe, for ever
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    except Exception as error:  # SQLAlchemy and Optuna have a dozen classes for a file they cannot use
        reason = str(error).splitlines()[0]
        raise SpecError(f"{path}: not an SQLite file of studies ({reason})\nhint: give a new file name") from error
    try:
        names = optuna.get_all_study_names(storage)
        if names and STUDY not in names:
            raise SpecError(
                f"{path}: holds other Optuna studies ({', '.join(names)}) and none of `metalforge search`"
                "\nhint: give another file"
            )
        study = optuna.create_study(storage=storage, study_name=STUDY, load_if_exists=True)
        # Through JSON, as the file keeps it: tuples come back as lists.
        wanted = msgspec.json.decode(msgspec.json.encode(identity))
        kept = study.user_attrs.get(IDENTITY, wanted)
        study.set_user_attr(IDENTITY, kept)
        names = [name for name in wanted | kept if kept.get(name) != wanted.get(name)]
        if differ := [f"{n}: {kept.get(n)} there, {wanted.get(n)} here" for n in names]:
            raise SpecError(
                f"{path}: holds a search of another kind; {'; '.join(differ)}"
                "\nhint: give another file, or the same task, space and seed"
            )
    except BaseException:
        _close(storage)
        raise
    return storage, study


def _distributions(space: Space, heads: int) -> dict[str, BaseDistribution]:
    found: dict[str, BaseDistribution] = {}
    for name in ("spectral_radius", "leak", "input_scaling", "bias_scaling", "ridge"):
        low, high = getattr(space, name)
        found[name] = FloatDistribution(low, high, log=name in ("input_scaling", "ridge"))
    found["units"] = IntDistribution(space.units[0], space.units[1], step=space.units[2])
    for name in ("connectivity", "activation", "heads")[: 2 + (heads > 1)]:
        found[name] = CategoricalDistribution(getattr(space, name))
    return found


BATCH = 32
"""Candidates asked for at once: enough to keep threads busy, few enough for TPE to learn from."""

Progress = Callable[["StudyResult"], None]


class StudyResult(NamedTuple):
    """All candidates of a study, those of earlier runs on the same file included."""

    task: str
    finished: list[FinishedTrial]
    seconds: Measured
    """Wall time of all runs together."""
    new: int
    """Candidates of this run."""

    @property
    def complete(self) -> list[FinishedTrial]:
        """Candidates that saw all the data, the best first."""
        done = [trial for trial in self.finished if trial.error is not None]
        return sorted(done, key=lambda trial: (trial.error or 0.0, trial.number))

    @property
    def best(self) -> FinishedTrial:
        """The candidate with the least validation error."""
        if not self.complete:
            raise SpecError("no candidate was evaluated in full\nhint: more trials")
        return self.complete[0]


@quiet()
def run_study(
    task: SearchTask,
    *,
    trials: int,
    space: Space | None = None,
    seed: int = 1,
    storage: Path | None = None,
    threads: int | None = None,
    batch: int = BATCH,
    progress: Progress | None = None,
) -> StudyResult:
    """Return a study of `trials` candidates in all; a file that has some already is carried on.

    On Ctrl-C everything told so far is in the file, and the KeyboardInterrupt goes on to the caller.
    """
    require_at_least(1, trials=trials, batch=batch)
    started = time.perf_counter()
    book = StudyBook(task, space or Space(), seed, storage)
    before = len(book.finished())

    def result() -> StudyResult:
        finished = book.finished()
        seconds = book.earlier_seconds + time.perf_counter() - started
        how = "perf_counter from the first ask to the last tell, all runs"
        return StudyResult(task.name, finished, Measured(value=seconds, unit="s", how=how), len(finished) - before)

    pool = ThreadPoolExecutor(max_workers=thread_count(threads))
    try:
        with one_thread():  # a core per candidate: BLAS threads of their own would only get in the way
            left = max(trials - before, 0)
            asked = book.ask(min(batch, left))
            while asked:
                left -= len(asked)
                candidates = [Candidate(parameters, task, seed) for _, parameters in asked]
                first = [pool.submit(candidate.climb) for candidate in candidates]
                following = book.ask(min(batch, left))
                errors = [future.result() for future in first]
                given_up = [book.report(t, error) for (t, _), error in zip(asked, errors, strict=True)]
                rest = [None if gone else pool.submit(c.climb) for c, gone in zip(candidates, given_up, strict=True)]
                book.save(time.perf_counter() - started)  # the batch before, while the kernels run
                for (trial, _), future in zip(asked, rest, strict=True):
                    book.tell(trial, None if future is None else future.result())
                if progress is not None:
                    progress(result())
                asked = following
        return result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        book.save(time.perf_counter() - started)
        book.close()
