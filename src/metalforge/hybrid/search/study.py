"""Phase 1: a task and a space go in, evaluated candidates come out, in batches over threads.

Two batches are under way at a time: while the kernels evaluate one, Optuna suggests the next and the file takes in the
one before, on the interpreter that the kernels do not need. Results are told in the order in which they were asked, so
a search is the same for any number of threads.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from metalforge.core.errors import SpecError
from metalforge.core.quantities import Measured
from metalforge.native import thread_count

from .evaluate import RUNGS, Candidate
from .optuna_ import FinishedTrial, Identity, StudyBook
from .space import Parameters, Space
from .tasks import SearchTask

__all__ = ["Progress", "StudyResult", "evaluate_many", "run_study"]

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
    if trials < 1 or batch < 1:
        raise SpecError(f"a search wants at least one trial and one a batch. Got {trials} and {batch}")
    identity = Identity(task=f"{task.name}/{task.seed}", space=space or Space(), seed=seed, rungs=RUNGS)
    started = time.perf_counter()
    book = StudyBook(identity, task.outputs, storage)
    before = len(book.finished())

    def result() -> StudyResult:
        finished = book.finished()
        seconds = book.earlier_seconds + time.perf_counter() - started
        how = "perf_counter from the first ask to the last tell, all runs"
        return StudyResult(task.name, finished, Measured(value=seconds, unit="s", how=how), len(finished) - before)

    pool = ThreadPoolExecutor(max_workers=thread_count(threads))
    try:
        with threadpool_limits(1):  # a core a candidate: BLAS threads of their own would only get in the way
            left = max(trials - before, 0)
            asked = book.ask(min(batch, left))
            while asked:
                left -= len(asked)
                candidates = [Candidate(parameters, task, seed) for _, parameters in asked]
                first = [pool.submit(candidate.climb) for candidate in candidates]
                following = book.ask(min(batch, left))
                errors = [future.result() for future in first]
                given_up = [book.report(t, 0, error) for (t, _), error in zip(asked, errors, strict=True)]
                rest = [None if gone else pool.submit(c.climb) for c, gone in zip(candidates, given_up, strict=True)]
                book.save(time.perf_counter() - started)  # the batch before, while the kernels run
                for (trial, _), future in zip(asked, rest, strict=True):
                    error = None if future is None else future.result()
                    diverged = error is None or error == float("inf")
                    if error is not None and not diverged:
                        book.report(trial, 1, error)
                    book.tell(trial, None if diverged else error)
                if progress is not None:
                    progress(result())
                asked = following
        return result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        book.save(time.perf_counter() - started)
        book.close()


def evaluate_many(
    points: Sequence[Parameters], task: SearchTask, *, seed: int = 1, threads: int | None = None
) -> list[float]:
    """Return the validation error of each point on all the data, without any search: what a benchmark compares."""

    def whole(parameters: Parameters) -> float:
        candidate = Candidate(parameters, task, seed)
        for _ in RUNGS:
            if candidate.climb() == float("inf"):
                break
        return candidate.errors[-1]

    with threadpool_limits(1), ThreadPoolExecutor(max_workers=thread_count(threads)) as pool:
        return list(pool.map(whole, points))
