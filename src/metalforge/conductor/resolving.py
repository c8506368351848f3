"""Who resolves a future, and with what: by a head in time, by the formula otherwise, once, on any thread."""

from metalforge.core.quantities import Measured

from .counting import Tally
from .futures import Clock, Future
from .requests import QuenchedThermCheck, Question, RejectPredict, SuggestParameters, kind_of
from .responses import Answer, Response, Source
from .routes import Estimate, route_of

__all__ = ["Resolver"]

WARM_UP_ONLY = (RejectPredict, SuggestParameters, QuenchedThermCheck)
"""Questions whose answers change what a chain does next: in measurement that would change what it samples."""


class Resolver:
    """Turns answers into responses. `Future.claim` lets one caller through; a deadline lets only the formula."""

    def __init__(self, clock: Clock, tally: Tally, audit_every: int) -> None:
        self._clock, self._tally, self._audit_every = clock, tally, audit_every

    def claimed_in_time(self, future: Future) -> bool:
        """Return whether a result may become the answer; a late one is counted, and the formula answers."""
        if not future.overdue() and future.claim():
            return True
        self._tally.add("late")
        self.expire(future)
        return False

    def expire(self, future: Future) -> None:
        """Resolve a request whose deadline has passed, unless somebody has."""
        self.without_head(future, "deadline")

    def without_head(self, future: Future, why: str, head: str | None = None) -> None:
        """Resolve a request that no head answers, unless somebody has."""
        if not isinstance(future.request, Question):
            begun = "had begun and may still take effect" if future.started else "was not done"
            self.fail(future, f"{why}: the command {begun}", None)
        elif future.claim():
            self.by_formula(future, "deadline" if future.overdue() else why, head)

    def fail(self, future: Future, message: str, cause: BaseException | None) -> None:
        """Resolve a request by an error, unless somebody has resolved it."""
        if future.claim():
            self._tally.add("failures")
            future.fail(message, cause)

    def by_head(self, future: Future, answer: Answer, head: str, why: str) -> None:
        """Resolve a claimed question by its head."""
        self._tally.add("heads")
        future.resolve(self._response(future, answer, "head", why, head=head))

    def by_command(self, future: Future, answer: Answer) -> None:
        """Resolve a claimed command that was done."""
        self._tally.add("commands")
        future.resolve(self._response(future, answer, "command", "done"))

    def by_formula(self, future: Future, why: str, head: str | None, estimate: Estimate | None = None) -> None:
        """Resolve a claimed question by its formula."""
        assert isinstance(future.request, Question)
        try:
            estimate = estimate or route_of(future.request).estimate(future.request)
        except Exception as error:
            self._tally.error(error)
            self._tally.add("failures")
            future.fail(f"{why}; and the formula failed: {error}", error)
            return
        self._tally.formula(why)
        future.resolve(self._response(future, estimate.answer, "heuristic", why, head=head, estimate=estimate))

    def may_act(self, future: Future) -> bool:
        """Return whether the answer may change the chain: not in measurement, nor for a rejection that is audited."""
        request = future.request
        if isinstance(request, WARM_UP_ONLY) and request.phase == "measure":
            return False
        return not (isinstance(request, RejectPredict) and future.id % self._audit_every == 0)

    def _response(
        self,
        future: Future,
        answer: Answer,
        source: Source,
        why: str,
        *,
        head: str | None = None,
        estimate: Estimate | None = None,
    ) -> Response:
        return Response(
            id=future.id,
            request=kind_of(future.request),
            answer=answer,
            source=source,
            head=head,
            formula=None if estimate is None else estimate.formula,
            why=why,
            note="" if estimate is None else estimate.note,
            act=self.may_act(future),
            seconds=Measured(value=self._clock() - future.asked_at, unit="s", how="worker's clock, ask to answer"),
        )
