"""What the conductor says to a question, without threads: the head, the formula, and which of them is believed."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from metalforge.core.errors import SpecError

from . import requests, responses
from .events import ChainEnded, Event, Outcome
from .features import ChainContext, FrameBuilder
from .requests import Command, Question
from .responses import Answer
from .routes import Estimate, ReadHead, Route, route_of
from .trust import Loss, Standing, Trust, mark_layout

if TYPE_CHECKING:
    from .heads import Conductor, HeadReading

__all__ = ["Answering", "Spoken", "Unavailable", "context_frame"]


def context_frame(question: Question, beta: float | None = None) -> dict[str, float]:
    """Return what a question says about a run before it, by the names of the feature schema."""
    beta = getattr(question, "beta", None) if beta is None else beta
    if question.dims is None or beta is None:
        known = {"beta": beta, "mass": question.mass}
        return {name: value for name, value in known.items() if value is not None}
    context = ChainContext(beta=beta, dims=question.dims, mass=question.mass, flavors=question.flavors)
    return FrameBuilder(context, question.meta).before(question.phase)


def _asked_about(question: Question) -> dict[str, float]:
    """Return the features that the question itself has measured."""
    if isinstance(question, requests.RejectPredict):
        return {"delta_h_quarter": question.delta_h_quarter, "has_quarter": 1.0}
    if isinstance(question, requests.PhaseClassify | requests.AnomalyCheck):
        return {"plaquette": question.plaquette}
    return {}


class Unavailable(Exception):  # noqa: N818  (a reason, not an error)
    """No head can answer this question; says why, and which head it would have been."""

    def __init__(self, why: str, head: str | None = None) -> None:
        super().__init__(why)
        self.head = head


class Spoken(NamedTuple):
    """What a head and the formula said to a question; (head, baseline) numbers for each part of it."""

    head: str
    answer: Answer
    estimate: Estimate
    standing: Standing
    pairs: list[tuple[float, float | None]]
    loss: Loss


class Answering:
    """A conductor, the trust in its heads, and the last frame and readings of every chain. For one thread."""

    def __init__(
        self,
        conductor: "Conductor",
        trust: Trust,
        *,
        load_weights: "Callable[[str], Conductor] | None" = None,
        read_log: Callable[[str], Sequence[Any]] | None = None,
    ) -> None:
        self.conductor, self.trust = conductor, trust
        self._load_weights, self._read_log = load_weights, read_log
        self._frames: dict[str, Mapping[str, float]] = {}
        self._readings: dict[str, Mapping[str, HeadReading]] = {}
        self._broken: dict[str, str] = {}

    def take_in(self, event: Event) -> None:
        """Move a chain's state by a trajectory, pair an outcome with its prediction, or forget a chain."""
        if isinstance(event, Outcome):
            self.trust.outcome(event.id, event.value, part=event.part)
        elif isinstance(event, ChainEnded):
            for kept in (self._frames, self._readings, self._broken):
                kept.pop(event.chain, None)
            self.conductor.end(event.chain)
        else:
            try:
                self._readings[event.chain] = self.conductor.observe(event.chain, event.frame)
            except Exception as error:
                self.break_chain(event.chain, f"a trajectory of chain {event.chain} was not taken in ({error})")
                raise
            self._frames[event.chain] = event.frame

    @property
    def chains(self) -> tuple[str, ...]:
        """The chains that are under way."""
        return tuple(dict.fromkeys([*self._readings, *self._broken]))

    def break_chain(self, chain: str, why: str) -> None:
        """Say that a chain's state missed a trajectory: until it ends, heads do not speak of it."""
        self._broken[chain] = why

    def head_for(self, question: Question) -> str | None:
        """Return the name of the head that a question is for, if the layout has one."""
        return route_of(question).head_in(self.conductor.heads)

    def speak(self, question: Question) -> Spoken:
        """Return what the head and the formula say; raises `Unavailable`, or whatever the head raised."""
        route = route_of(question)
        head = self.head_for(question)
        if head is None:
            raise Unavailable(f"unavailable: the layout has no {' or '.join(route.heads)}")
        standing = self.trust.standing(head)
        if (mark := self.trust.marked(head)) is not None:
            raise Unavailable(mark if mark.startswith("unavailable") else f"untrusted: {mark}", head)
        if route.scored is None and not standing.trusted:
            raise Unavailable(f"untrusted: {standing.why}", head)  # many readings from which nothing would be learned
        estimate = route.estimate(question)
        answer = route.decode(question, self._reader(question, route, head))
        return Spoken(head, answer, estimate, standing, _pairs(route, answer, estimate), route.loss)

    def _reader(self, question: Question, route: Route, head: str) -> ReadHead:
        chain = question.chain
        if chain is not None and chain in self._broken:
            raise Unavailable(f"unavailable: {self._broken[chain]}", head)
        if route.from_state and not question.features:
            if chain not in self._readings:
                raise Unavailable("unavailable: no trajectory of the question's chain was seen", head)
            reading = self._readings[chain][head]
            return lambda beta: reading
        own = {**_asked_about(question), **question.features}

        def read(beta: float | None) -> "HeadReading":
            # At another coupling than the chain's, or without one, nothing that was seen counts: a run from rest.
            along = chain if beta is None else None
            frame = None if along is None else self._frames.get(along)
            return self.conductor.read({**(frame or context_frame(question, beta)), **own}, chain=along)[head]

        return read

    def obey(self, command: Command) -> Answer:
        """Do what a command says."""
        if isinstance(command, requests.Retrain):
            self._retrain(command.records)
            return responses.Retrained(records=len(command.records))
        if isinstance(command, requests.ExportWeights):
            self.conductor.export(command.path)
            return responses.WeightsSaved(path=command.path)
        if isinstance(command, requests.BootstrapFromLog):
            if self._read_log is None:
                raise SpecError("this worker cannot read logs\nhint: Worker(..., read_log=...)")
            records = self._read_log(command.path)
            self._retrain(records)
            return responses.Bootstrapped(path=command.path, records=len(records))
        if isinstance(command, requests.BootstrapFromWeights):
            if self._load_weights is None:
                raise SpecError("this worker cannot load weights\nhint: Worker(..., load_weights=...)")
            self.conductor = self._load_weights(command.path)
            self.trust.forget()  # it was trust in another network
            mark_layout(self.trust, self.conductor.layout)
            for chain in self._readings:
                self.break_chain(chain, f"chain {chain} began with other weights")
            return responses.Bootstrapped(path=command.path)
        raise SpecError(f"a command that nobody obeys: {requests.kind_of(command)}")

    def _retrain(self, records: Sequence[Any]) -> None:
        self.conductor.retrain(records)
        mark_layout(self.trust, self.conductor.layout)  # heads that have labels now may earn their trust


def _pairs(route: Route, answer: Answer, estimate: Estimate) -> list[tuple[float, float | None]]:
    if route.scored is None:
        return []
    said = route.scored(answer)
    formula: Sequence[float | None] = route.scored(estimate.answer) if route.comparable else [None] * len(said)
    if not all(map(math.isfinite, said)):
        raise SpecError(f"the head gave {said}")
    return list(zip(said, formula, strict=True))
