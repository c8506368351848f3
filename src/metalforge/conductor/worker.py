"""The conductor's worker: chains' rows go in, and whoever wants to know what a head says of them asks it.

::

    with Worker(conductor, trust=trust_of(conductor.layout), deadline_s=0.05) as worker:
        worker.begin("c0", context)
        cg = worker.ask(HeadQuestion(head="cg_estimate", chain="c0", of=coming, baseline=last, loss="squared"))
        ...                                                                     # the heads run meanwhile
        expected = cg.get().value                                               # by the head if it is trusted
        worker.tell("c0", first, "measure", columns)                            # rows, by column as a run has them
        worker.outcome(cg.id, iterations)                                       # judges head and baseline

It holds one state of the network a chain, moved by every row in the order in which rows are told, in blocks of any
length; so all askers have the same reading of a row, and a chain whose rows are told again from the first has the same
readings again, bit for bit. Whoever takes up a chain says what rows it has: those that were read are not read again. A
question sees what was told before it and waits for nothing later. Where the head is not
trusted, is late, fails or is not there any more, the question's baseline is the answer: nobody waits beyond a deadline,
and nothing raises.
"""

import math
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from metalforge.core.arrays import Reals
from metalforge.core.closing import Closing
from metalforge.core.errors import SpecError
from metalforge.core.rows import Phase
from metalforge.core.schema import HeadLayout
from metalforge.reservoir.heads import HeadValues

from .features import SEEN, ChainContext, FrameMaker
from .questions import ComingTrajectory, Conductor, Future, HeadAnswer, HeadQuestion, Tally, WorkerStatistics
from .trust import Trust, trust_of

Columns: TypeAlias = Mapping[str, Sequence[float]]
Past: TypeAlias = Sequence[tuple[Phase, Columns]]
"""Rows of a chain from its first on, phase by phase."""
Job: TypeAlias = Future | Callable[[], object]
KEPT = 256
"""Frames of a chain, at least, whose readings can be asked for after others have come."""


class WorkerStuckWarning(UserWarning):
    """The worker's thread is inside a call that does not return; its questions are answered all the same."""


class NotYetError(SpecError):
    """A chain has no frame so far: sweeps give one for many rows."""


class _ChainReader:
    """One chain as the worker holds it: what makes frames of its rows, and what was said of the last of them."""

    def __init__(self, conductor: Conductor, chain: str, context: ChainContext) -> None:
        self._conductor, self._chain, self._maker = conductor, chain, FrameMaker(context)
        self._kept: deque[tuple[NDArray[np.int64], HeadValues]] = deque()
        """Rows that frames ended with, and what was said of them, block by block."""
        self._frames = 0
        self._forgot = 0
        """Rows up to which it is not known any more what was said."""
        self._last: tuple[float, ...] = ()
        """The last row, as far as every chain has it."""
        conductor.end(chain)

    def knows(self, context: ChainContext, past: Past, since: int) -> bool:
        """Return whether a chain's rows begin with those that were read, and what was said from `since` on is known."""
        read = self._maker.count
        if context != self._maker.context or since < self._forgot or read > _count(past):
            return False
        for _, columns in past:
            if read <= (rows := len(columns["plaquette"])):
                return not read or self._last == _row(columns, read - 1)
            read -= rows
        return not read

    def catch_up(self, past: Past) -> int:
        """Take the rows of a chain that were not read yet; return their number."""
        began, first = self._maker.count, 0
        for phase, columns in past:
            end = first + len(columns["plaquette"])
            if (read := self._maker.count) < end:
                left = columns if read == first else {name: values[read - first :] for name, values in columns.items()}
                self.take(read, phase, left)
            first = end
        return self._maker.count - began

    def take(self, first: int, phase: Phase, columns: Columns) -> None:
        if first != self._maker.count:
            raise SpecError(f"row {self._maker.count} comes next. Got {first}")
        frames = self._maker.push(phase, columns)
        if len(columns["plaquette"]):
            self._last = _row(columns, -1)
        if not len(frames.rows):
            return
        self._kept.append((frames.rows, self._conductor.observe(self._chain, frames.values)))
        self._frames += len(frames.rows)

    def forget(self) -> None:
        """Forget what was said of all but the last frames."""
        while self._kept and self._frames - len(self._kept[0][0]) >= KEPT:
            rows, _ = self._kept.popleft()
            self._frames -= len(rows)
            self._forgot = int(rows[-1]) + 1

    def said(self, row: int) -> HeadValues:
        """Return what was said after the last frame at or before a row."""
        if row >= self._maker.count:
            raise SpecError(f"row {row} of chain {self._chain} was not told")
        for rows, said in reversed(self._kept):
            if rows[0] <= row:
                return said.at(int(np.searchsorted(rows, row, side="right")) - 1)
        if self._forgot:
            raise SpecError(f"row {row} of chain {self._chain} was told too long ago")
        raise NotYetError(f"chain {self._chain} has no frame by row {row}")

    def coming(self, trajectory: ComingTrajectory) -> HeadValues:
        frame = self._maker.coming(trajectory.phase, trajectory.n_steps, trajectory.delta_h_quarter)
        return self._conductor.read(self._chain, frame)


class Worker(Closing):
    """Reads heads on a thread of its own, from its construction until `close` or the end of `with`.

    Parameters
    ----------
    conductor
        Reads the heads. Only the worker's thread touches it.
    trust
        Judges the heads; by default a new one, in which every head begins untrusted and untrained ones are marked.
    clock
        Seconds, for deadlines.
    deadline_s
        For questions that are asked without one; None: they are waited for, whatever the clock says.
    capacity
        Jobs that may wait; a worker that is further behind is given up, as one that died. None: any number.
    threaded
        False: there is no thread, and whoever calls does the work, one at a time.
    """

    def __init__(
        self,
        conductor: Conductor,
        *,
        trust: Trust | None = None,
        clock: Callable[[], float] = time.monotonic,
        deadline_s: float | None = None,
        capacity: int | None = None,
        threaded: bool = True,
    ) -> None:
        _checked_deadline(deadline_s)
        self.trust = trust_of(conductor.layout) if trust is None else trust
        self._conductor, self._clock, self._deadline_s = conductor, clock, deadline_s
        self._capacity = math.inf if capacity is None else capacity
        self._tally = Tally()
        self._chains: dict[str, _ChainReader | str] = {}
        """By chain; a text says why nothing can be said of it any more."""
        self._wake = threading.Condition(threading.RLock())
        self._jobs: deque[Job] = deque()
        self._in_hand: Job | None = None
        self._next_id = 0
        self._closing = False
        self._ended: str | None = None
        """Why nothing is taken any more; None while it is."""
        self._thread = threading.Thread(target=self._serve, name="conductor-worker", daemon=True) if threaded else None
        if self._thread is not None:
            self._thread.start()

    @property
    def layout(self) -> HeadLayout:
        """The heads, with which of them are trained."""
        return self._conductor.layout

    @property
    def running(self) -> bool:
        """Whether heads can be asked."""
        return self._ended is None and not self._closing

    def begin(self, chain: str, context: ChainContext, past: Past = (), *, since: int = 0) -> None:
        """Take up a chain that has these rows; what was said of those from `since` on can be asked for; never waits.

        Where they begin with the rows that were told before, only the others are read; else all of them, from the
        chain's first on. Columns must not be changed afterwards.
        """
        self._put(partial(self._begin, chain, context, past, since))

    def tell(self, chain: str, first: int, phase: Phase, columns: Columns) -> None:
        """Take a chain's next rows of one phase, by column, of which the first has this number; never waits.

        Columns must not be changed afterwards.
        """
        self._put(partial(self._take, chain, first, phase, columns))

    def end(self, chain: str) -> None:
        """Forget a chain."""
        self._put(partial(self._end, chain))

    def rewrite(self, w_out: Reals, out_bias: Reals) -> None:
        """Read what is told from now on by another readout of all heads; on a device it is written over the old one."""
        self._put(partial(self._rewrite, w_out, out_bias))

    def outcome(self, id: int, value: float) -> None:
        """Say what came of the question with this id; 0 or 1 where something happened or not."""
        self._put(partial(self.trust.outcome, id, value))

    def ask(self, question: HeadQuestion, deadline_s: float | None = None) -> Future:
        """Return the future of a question; never waits. The deadline counts from now."""
        _checked_deadline(deadline_s)
        deadline_s = self._deadline_s if deadline_s is None else deadline_s
        with self._wake:
            id, self._next_id = self._next_id, self._next_id + 1
        self._tally.add("asked")
        future = Future(id, question, clock=self._clock, deadline_s=deadline_s, settled=self._tally.answered)
        self._put(future)
        return future

    def collect(self, future: Future) -> HeadAnswer:
        """Return the answer to a question that was asked before a long phase, now that it is over; counted."""
        self._tally.add("ahead")
        self._tally.add("ahead_ready", int(future.done()))
        return future.get()

    def statistics(self) -> WorkerStatistics:
        """Return what was done so far."""
        return self._tally.statistics()

    def close(self, grace_s: float = 10.0) -> None:
        """Do what was told and asked before, and end; a thread that takes longer than `grace_s` is left behind."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(grace_s)
            if self._thread.is_alive():
                warnings.warn(f"the conductor did not return within {grace_s} s", WorkerStuckWarning, stacklevel=2)
        self._give_up("closed")

    def _put(self, job: Job) -> None:
        with self._wake:
            if self._ended is None and len(self._jobs) >= self._capacity:
                self._give_up(f"died: {len(self._jobs)} jobs behind")
            ended = self._ended or ("closed" if self._closing else None)
            if ended is None:
                if self._thread is not None:
                    self._jobs.append(job)
                    self._wake.notify()
                else:
                    self._do(job)
        if ended is not None:
            self._refuse(job, ended)

    def _serve(self) -> None:
        try:
            while (job := self._next()) is not None:
                self._do(job)
        finally:
            # Also when something that is no Exception ends the thread: nobody may be left waiting.
            self._give_up("closed" if self._closing else "died")

    def _next(self) -> Job | None:
        """Return the oldest job, waiting for one; None to end."""
        with self._wake:
            self._in_hand = None
            while not (self._jobs or self._closing or self._ended):
                self._wake.wait()
            self._in_hand = self._jobs.popleft() if self._jobs else None
            return self._in_hand

    def _do(self, job: Job) -> None:
        if isinstance(job, Future):
            self._answer(job)
        else:
            job()

    def _give_up(self, why: str) -> None:
        """Answer all that waits by baselines, and take nothing any more."""
        with self._wake:
            self._ended = self._ended or why
            left = [*([] if self._in_hand is None else [self._in_hand]), *self._jobs]
            self._jobs.clear()
            self._in_hand = None
            self._wake.notify()
        for job in left:
            self._refuse(job, why)

    def _refuse(self, job: Job, why: str) -> None:
        if isinstance(job, Future):
            job.fall_back(why)
        elif isinstance(job, partial) and job.func == self._take:
            self._tally.add("rows_lost", len(job.args[3]["plaquette"]))
        elif isinstance(job, partial) and job.func == self._begin:
            self._tally.add("rows_lost", _count(job.args[2]))

    def _begin(self, chain: str, context: ChainContext, past: Past, since: int) -> None:
        reader = self._chains.get(chain)
        try:
            if not isinstance(reader, _ChainReader) or not reader.knows(context, past, since):
                reader = self._chains[chain] = _ChainReader(self._conductor, chain, context)
            self._tally.add("rows", reader.catch_up(past))
        except Exception as error:
            self._lose(chain, 0, _count(past), error)

    def _take(self, chain: str, first: int, phase: Phase, columns: Columns) -> None:
        """Move a chain by rows; one that misses some is not spoken of until it is begun again."""
        reader, count = self._chains.get(chain, "it was not begun"), len(columns["plaquette"])
        if isinstance(reader, str):
            self._tally.add("rows_lost", count)
            return
        try:
            reader.take(first, phase, columns)
            reader.forget()
            self._tally.add("rows", count)
        except Exception as error:
            self._lose(chain, first, count, error)

    def _lose(self, chain: str, first: int, count: int, error: Exception) -> None:
        self._tally.add("rows_lost", count)
        self._chains[chain] = f"its rows from {first} on could not be read ({self._tally.error(error)})"

    def _end(self, chain: str) -> None:
        self._chains.pop(chain, None)
        self._conductor.end(chain)

    def _rewrite(self, w_out: Reals, out_bias: Reals) -> None:
        try:
            self._tally.add("bytes_rewritten", self._conductor.rewrite(w_out, out_bias))
            self._tally.add("rewritten")
        except Exception as error:  # heads go on as they were; whoever looks at the counts sees it
            self._tally.error(error)

    def _answer(self, future: Future) -> None:
        """Settle a question by its head if that is trusted, else by its baseline; remember what both said."""
        if future.done():  # its deadline passed in the queue: the head is not even asked
            return
        asked = future.question
        reader = self._chains.get(asked.chain, "it was not begun")
        if isinstance(reader, str):
            future.fall_back(f"lost: of chain {asked.chain} nothing is known: {reader}")
            return
        try:
            values = reader.said(asked.of) if isinstance(asked.of, int) else reader.coming(asked.of)
            said = {name: float(value[-1]) for name, value in values.items()}
            if not math.isfinite(said[asked.head]):
                raise SpecError(f"the head gave {said[asked.head]}")
        except NotYetError as error:
            future.fall_back(f"early: {error}")
            return
        except Exception as error:
            future.fall_back(f"error: {self._tally.error(error)}")
            return
        trusted, _, _, why = self.trust.standing(asked.head)
        answer = HeadAnswer(
            id=future.id,
            head=asked.head,
            value=said[asked.head] if trusted else asked.baseline,
            source="head" if trusted else "baseline",
            why=f"{'trusted' if trusted else 'untrusted'}: {why}",
            said=said,
            spread=self._conductor.spreads.get(asked.head),
        )
        if future.overdue() or not future.settle(answer):
            self._tally.add("late")
            future.fall_back("deadline")
        elif asked.loss is not None and asked.baseline is not None:
            try:
                prediction, baseline = said[asked.head], asked.baseline
                self.trust.expect(future.id, asked.head, prediction, baseline, loss=asked.loss, chain=asked.chain)
            except SpecError as error:  # such as a baseline that is no number: the answer is still good
                self._tally.error(error)


def _count(past: Past) -> int:
    return sum(len(columns["plaquette"]) for _, columns in past)


def _row(columns: Columns, row: int) -> tuple[float, ...]:
    """Return what every chain has of a row."""
    return tuple(columns[name][row] for name in SEEN)


def _checked_deadline(deadline_s: float | None) -> None:
    if deadline_s is not None and math.isnan(deadline_s):
        raise SpecError("`deadline_s` must be a number of seconds, or None for no deadline")
