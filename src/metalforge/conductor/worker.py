"""The conductor's worker: one thread that answers questions by heads or by formulas, on time, each to its asker.

::

    with Worker(conductor, trust=trust_of(layout)) as worker:
        length = worker.ask(PredictQuenchedLength(...), deadline_s=0.05)    # before the phase
        ...                                                                 # a long phase; the heads run meanwhile
        budget = length.get().answer.updates                                # after it: nothing to wait for

Every question is read from its head *and* computed by its formula; trust decides which of the two is the answer, and
both wait under the request's id for the outcome that will judge them. Events are told, not asked, on a queue of their
own; a question sees the events that were submitted before it and waits for no later ones.
"""

import math
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from metalforge.core.closing import Closing
from metalforge.core.errors import SpecError
from metalforge.core.files import PathLike

from . import requests, responses
from .answering import Answering, Spoken, Unavailable
from .counting import Tally, WorkerStatistics
from .events import Event, TrajectoryEvent
from .futures import Clock, Future, WorkerError
from .requests import Command, Question, Request, Shutdown
from .resolving import Resolver
from .responses import Answer
from .trust import Trust, TrustState, trust_of

if TYPE_CHECKING:
    from .heads import Conductor

__all__ = ["Future", "Worker", "WorkerError", "WorkerState", "WorkerStatistics", "WorkerStuckWarning"]

OnError: TypeAlias = Literal["heuristic", "raise"]


class WorkerStuckWarning(UserWarning):
    """The worker's thread is inside a call that does not return; its futures are resolved all the same."""


class WorkerState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a restarted worker needs: ids go on where they were, so that outcomes still find their predictions."""

    version: Literal[1] = 1
    next_id: int
    trust: TrustState
    weights: str | None = None
    """The file the weights were written to, if they were."""
    chains: tuple[str, ...] = ()
    """Chains that were under way; their states are not kept."""


class Worker(Closing):
    """Answers requests on a thread of its own, from its construction until `close`, a `Shutdown` or the end of `with`.

    Parameters
    ----------
    conductor
        Reads the heads. Only the worker's thread touches it.
    trust
        Judges the heads; by default a new one, in which every head begins untrusted and untrained ones are marked.
    clock
        Seconds for deadlines and durations.
    deadline_s
        For requests that are asked without one.
    on_error
        When a head raises: answer by the formula, or let `Future.get` raise.
    audit_every
        In warm-up, one rejection of so many is predicted and not acted on: only what is left to happen can be scored.
    event_capacity
        Events that may wait. Beyond it they are dropped and counted, and heads say nothing more of that chain.
    load_weights, read_log
        For the bootstrap commands: a conductor from a file of weights; training records from a log.
    """

    def __init__(
        self,
        conductor: "Conductor",
        *,
        trust: Trust | None = None,
        clock: Clock = time.monotonic,
        deadline_s: float | None = None,
        on_error: OnError = "heuristic",
        audit_every: int = 10,
        event_capacity: int = 100_000,
        load_weights: "Callable[[str], Conductor] | None" = None,
        read_log: Callable[[str], Sequence[Any]] | None = None,
        first_id: int = 0,
    ) -> None:
        if on_error not in ("heuristic", "raise"):
            raise SpecError(f"`on_error` must be heuristic or raise. Got `{on_error}`")
        for name, value in (("audit_every", audit_every), ("event_capacity", event_capacity)):
            if value < 1:
                raise SpecError(f"`{name}` must be at least 1. Got {value}")
        _checked_deadline(deadline_s)
        self.trust = trust_of(conductor.layout) if trust is None else trust
        self._answering = Answering(conductor, self.trust, load_weights=load_weights, read_log=read_log)
        self._clock, self._deadline_s, self._on_error = clock, deadline_s, on_error
        self._event_capacity = event_capacity
        self._tally = Tally()
        self._resolver = Resolver(clock, self._tally, audit_every)
        self._wake = threading.Condition()
        self._requests: deque[tuple[int, Future]] = deque()
        self._events: deque[tuple[int, Event]] = deque()
        self._order, self._next_id = 0, first_id
        self._in_hand: Future | None = None
        self._lost_chains: set[str] = set()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._ended: str | None = "not started"
        """Why no thread takes requests; None while one does."""
        self.restart()

    def ask(self, request: Request, deadline_s: float | None = None) -> Future:
        """Return the future of a request; never waits.

        The deadline counts from now. A worker that has ended answers questions by their formulas, at once.
        """
        if not isinstance(request, Question | Command):
            raise SpecError(f"`request` must be one of metalforge.conductor.requests. Got {type(request).__name__}")
        _checked_deadline(deadline_s)
        deadline_s = self._deadline_s if deadline_s is None else deadline_s
        self._tally.add("asked")
        with self._wake:
            future = Future(
                self._next_id,
                request,
                clock=self._clock,
                deadline_s=deadline_s,
                expire=self._resolver.expire,
                stalled=self._tally.stall,
            )
            self._next_id += 1
            ended = self._ended or ("shutdown" if self._closing else None)
            if ended is None:
                self._requests.append((self._order, future))
                self._order += 1
                self._wake.notify()
        if ended is not None:
            self._resolver.without_head(future, ended)
        return future

    def submit_event(self, event: Event) -> bool:
        """Tell the worker something; never waits. Returns False, and counts it, when there is no room or no worker."""
        with self._wake:
            taken = self._ended is None and not self._closing and len(self._events) < self._event_capacity
            if taken:
                self._events.append((self._order, event))
                self._order += 1
                self._wake.notify()
            elif isinstance(event, TrajectoryEvent):
                self._lost_chains.add(event.chain)
        self._tally.add("events" if taken else "events_dropped")
        return taken

    def statistics(self) -> WorkerStatistics:
        """Return what was done so far."""
        return self._tally.statistics()

    @property
    def running(self) -> bool:
        """Whether the thread takes requests."""
        return self._ended is None and not self._closing

    def restart(self) -> None:
        """Start a thread again after the last one has ended; weights, trust, chains and ids go on."""
        with self._wake:
            if self._thread is not None and self._thread.is_alive():
                raise WorkerError("the last thread has not ended, and two would share one conductor\nhint: close()")
            self._ended, self._closing = None, False
            self._thread = threading.Thread(target=self._run, name="conductor-worker", daemon=True)
            self._thread.start()

    def close(self, grace_s: float = 10.0) -> None:
        """End the worker: what is queued is answered by formula now, events are still taken in, the thread is joined.

        A call that does not return within `grace_s` seconds is left behind, with a warning.
        """
        with self._wake:
            self._closing = True
            waiting = [future for _, future in self._requests]
            self._requests.clear()
            self._wake.notify()
        for future in waiting:
            self._resolver.without_head(future, "shutdown")
        assert self._thread is not None
        self._thread.join(grace_s)
        if self._thread.is_alive():
            with self._wake:
                self._ended, stuck = "shutdown", self._in_hand
            if stuck is not None:
                self._resolver.without_head(stuck, "shutdown")
            warnings.warn(f"the conductor did not return within {grace_s} s", WorkerStuckWarning, stacklevel=2)

    def state(self, weights: PathLike | None = None) -> WorkerState:
        """Return what a new worker needs to go on from here; the weights are written to a file if one is named."""
        path = None if weights is None else str(weights)
        if path is not None:
            if self.running:
                self.ask(requests.ExportWeights(path=path), deadline_s=math.inf).get()
            else:
                self._answering.conductor.export(path)
        with self._wake:
            chains = self._answering.chains
            return WorkerState(next_id=self._next_id, trust=self.trust.state(), weights=path, chains=chains)

    @classmethod
    def restore(cls, state: WorkerState, conductor: "Conductor | None" = None, **options: Any) -> "Worker":
        """Return a worker that goes on from a state: with this conductor, or with the weights that the state names.

        `options` are those of the class; weights from a file need `load_weights`. Of chains that were under way heads
        do not speak, since their states are gone: end such a chain, and tell its trajectories again from the first.
        """
        if conductor is None:
            load = options.get("load_weights")
            if load is None or state.weights is None:
                raise SpecError("give a conductor, or a state with weights and `load_weights` to read them")
            conductor = load(state.weights)
        trust = options.pop("trust", None) or Trust()
        trust.restore(state.trust)
        worker = cls(conductor, trust=trust, first_id=state.next_id, **options)
        for chain in state.chains:
            worker._answering.break_chain(chain, f"chain {chain} was under way when the worker was restarted")
        return worker

    def _run(self) -> None:
        reason = "died"
        try:
            while (job := self._next()) is not None:
                if isinstance(job, Future):
                    self._handle_safely(job)
                else:
                    self._take_in(job)
            reason = "shutdown"
        finally:
            # Also when something that is no Exception ends the thread: nobody may be left waiting.
            with self._wake:
                self._ended = reason
                left = [future for future in (self._in_hand, *(f for _, f in self._requests)) if future is not None]
                lost = len(self._events)
                self._requests.clear()
                self._events.clear()
                self._in_hand = None
            self._tally.add("events", -lost)
            self._tally.add("events_dropped", lost)
            for future in left:
                self._resolver.without_head(future, reason)

    def _next(self) -> Future | Event | None:
        """Return the oldest of all events and requests, waiting for one; None to end."""
        with self._wake:
            self._in_hand = None
            while not (self._requests or self._events or self._closing):
                self._wake.wait()
            for chain in self._lost_chains:
                self._answering.break_chain(chain, f"a trajectory of chain {chain} was dropped")
            self._lost_chains.clear()
            if self._events and not (self._requests and self._requests[0][0] < self._events[0][0]):
                return self._events.popleft()[1]
            if not self._requests:
                return None
            self._in_hand = self._requests.popleft()[1]
            return self._in_hand

    def _take_in(self, event: Event) -> None:
        try:
            self._answering.take_in(event)
        except Exception as error:
            self._tally.add("events_failed")
            self._tally.error(error)

    def _handle_safely(self, future: Future) -> None:
        try:
            self._handle(future)
        except Exception as error:  # not the head's, which is expected: the worker goes on all the same
            self._tally.error(error)
            self._resolver.without_head(future, f"error: {type(error).__name__}: {error}")
        finally:
            future.abandon("the worker failed while it answered", None)

    def _handle(self, future: Future) -> None:
        if future.done():  # its deadline passed in the queue: the head is not even asked
            return
        future.started = True
        if isinstance(future.request, Question):
            self._answer(future, future.request)
            return
        assert isinstance(future.request, Command)
        try:
            answer = self._obey(future.request)
        except Exception as error:
            self._tally.error(error)
            self._resolver.fail(future, f"{type(error).__name__}: {error}", error)
            return
        if self._resolver.claimed_in_time(future):
            self._resolver.by_command(future, answer)

    def _obey(self, command: Command) -> Answer:
        if isinstance(command, Shutdown):
            with self._wake:
                self._closing = True
            return responses.Stopped()
        return self._answering.obey(command)

    def _answer(self, future: Future, question: Question) -> None:
        """Resolve a question by its head if that is trusted, else by its formula; remember what both said."""
        try:
            spoken = self._answering.speak(question)
        except Unavailable as reason:
            self._resolver.without_head(future, str(reason), reason.head)
            return
        except Exception as error:
            self._tally.error(error)
            why = f"error: {type(error).__name__}: {error}"
            if self._on_error == "raise" and not future.overdue():
                self._resolver.fail(future, why, error)
            else:
                self._resolver.without_head(future, why, self._answering.head_for(question))
            return
        if not self._resolver.claimed_in_time(future):
            return
        # A rejection that is acted on never happens: scoring the others alone would favour a head that accepts.
        if not (isinstance(question, requests.RejectPredict) and self._resolver.may_act(future)):
            self._expect(future, spoken)
        if spoken.standing.trusted:
            self._resolver.by_head(future, spoken.answer, spoken.head, f"trusted: {spoken.standing.why}")
        else:
            self._resolver.by_formula(future, f"untrusted: {spoken.standing.why}", spoken.head, spoken.estimate)

    def _expect(self, future: Future, spoken: Spoken) -> None:
        try:
            for part, (said, baseline) in enumerate(spoken.pairs):
                self.trust.expect(future.id, spoken.head, said, baseline, loss=spoken.loss, part=part)
        except SpecError as error:  # such as a head scored by another loss elsewhere: the answer is still good
            self._tally.error(error)


def _checked_deadline(deadline_s: float | None) -> None:
    if deadline_s is not None and math.isnan(deadline_s):
        raise SpecError("`deadline_s` must be a number of seconds, or None for no deadline")
