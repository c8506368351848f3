"""The server: journals are followed in the background, requests get what is known, streams what is new."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from metalforge.campaign import one_line, steerer_names
from metalforge.core import MetalforgeError, SpecError

from .commanding import JSON, PATH, Commanding
from .following import Followed
from .helpers import Helper, answer, other_steerer, timed_transition
from .payloads import (
    campaign_line,
    chain_sent,
    decisions_sent,
    encoded,
    machine_sent,
    state_now,
    state_sent,
    transition_sent,
)

PAGE = Path(__file__).with_name("page")
FILES = {path.name: path for path in PAGE.iterdir() if path.suffix in (".js", ".css", ".svg")}
"""What may be asked for by name: no path is ever made of a request."""
LOOK_S = 0.2
"""Seconds between two looks at the journals, and of a stream at what is known."""
PACE_S = 0.5
"""Seconds between two messages of a stream, at least: what came meanwhile is in the next one."""
TICK_S = 1.0
"""Seconds after which clocks have moved on."""
FIGURE_S, FIGURE_SHARE = 3.0, 0.05
"""Seconds between two computations of a figure, at least; and the share of a core that they may take."""
NICENESS = 10
"""Of figures that nobody asked for: the campaign comes first where it runs on the same cores."""
SILENCE_S = 15.0
"""Seconds after which a stream says that it is there: proxies close what is silent."""
MOST_STREAMS = 100
KEPT = 64
"""Answers about the past that are kept: they do not change."""


class ShownCampaign:
    """One campaign of the page: its fold, and the last figure that was computed."""

    def __init__(self, number: int, directory: Path, helper: Helper) -> None:
        self.number = number
        self.followed = Followed(directory)
        self.figure = b""
        self.figure_of = -1
        """Records up to the last rows in it."""
        self._helper = helper
        self._figure_next = 0.0
        self._making: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._shared: dict[object, tuple[object, bytes]] = {}

    @property
    def seen(self) -> tuple[int, int, str]:
        """What changes whenever there is something new to say."""
        return self.followed.records, int(time.time() / TICK_S), self.followed.problem

    async def advance(self) -> None:
        """Read on in the journal."""
        async with self._lock:
            await asyncio.to_thread(self.followed.advance)

    async def ask(self, of: object, question: Callable[..., object], *more: object) -> bytes:
        """Return what a function of `payloads` makes of the fold, as JSON that stays as long as what it is `of`.

        It runs in a thread, while nobody changes the fold; many streams share an answer.
        """
        of = of, more
        if question not in self._shared or self._shared[question][0] != of:
            async with self._lock:
                answered = await asyncio.to_thread(lambda: encoded(question(self.followed, *more)))
            self._shared[question] = of, answered
        return self._shared[question][1]

    async def state(self) -> bytes:
        """Return the state now."""
        return await self.ask(self.seen, state_now)

    async def line(self) -> bytes:
        """Return the line of the table."""
        return await self.ask(self.seen, campaign_line, self.number)

    async def transition(self) -> bytes:
        """Return the last figure; the first one is waited for."""
        self.renew()
        if not self.figure and self._making is not None:
            await self._making
        if not self.figure:
            raise SpecError("nothing has been measured yet")
        return self.figure

    def renew(self) -> None:
        """Have the figure computed again, if there are new rows and it is not too soon."""
        idle = (self._making is None or self._making.done()) and not self.followed.behind
        if idle and self.figure_of != self.followed.rows_at and time.monotonic() >= self._figure_next:
            self._making = asyncio.create_task(self._make())

    async def _make(self) -> None:
        rows_at, took = self.followed.rows_at, 0.0
        try:
            directory = str(self.followed.directory)
            self.figure, took = await self._helper(timed_transition, directory, self.followed.records)
        except (MetalforgeError, BrokenExecutor):
            pass  # the state says what is wrong with the journal
        finally:
            self.figure_of = rows_at
            self._figure_next = time.monotonic() + max(FIGURE_S, took / FIGURE_SHARE)


class Server:
    """The campaigns of a page, and what is answered about them."""

    def __init__(self, directories: Sequence[Path], *, control: bool = False) -> None:
        self.commanding = Commanding(control)
        self._now, self._past, self._other = Helper(NICENESS), Helper(), Helper(NICENESS)
        self._campaigns = [ShownCampaign(number, path, self._now) for number, path in enumerate(directories)]
        self._answers: dict[tuple[object, ...], bytes] = {}
        self._streams = 0
        self._closing = False

    def app(self) -> Starlette:
        """Return the application, which nobody guards yet."""
        routes = [
            Route("/", self._index),
            Route("/page/{name}", self._file),
            Route("/campaigns", self._campaign_lines),
            Route("/state", self._answers_to(state_sent)),
            Route("/decisions", self._answers_to(decisions_sent)),
            Route("/chain", self._answers_to(chain_sent, lambda query: query.get("chain", ""))),
            Route("/machine", self._answers_to(machine_sent, lambda query: query.get("span") == "minute")),
            Route("/transition", self._answers_to(transition_sent)),
            Route("/otherwise", self._otherwise),
            Route("/control", self._control),
            Route(PATH, self._command, methods=["POST"]),
            Route("/events", self._events),
        ]
        handlers = dict.fromkeys((HTTPException, MetalforgeError, BrokenExecutor), _problem)
        return Starlette(routes=routes, lifespan=self._lifespan, exception_handlers=handlers)

    def close(self) -> None:
        """Let streams and answers end: a server waits for them."""
        self._closing = True
        self._now.close()
        self._past.close()
        self._other.close()

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        following = [asyncio.create_task(self._follow(campaign)) for campaign in self._campaigns]
        try:
            yield
        finally:
            self.close()
            for task in following:
                task.cancel()

    async def _follow(self, campaign: ShownCampaign) -> None:
        while True:
            await campaign.advance()
            await asyncio.sleep(0 if campaign.followed.behind else LOOK_S)

    async def _index(self, request: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    async def _file(self, request: Request) -> Response:
        path = FILES.get(request.path_params["name"])
        return Response("there is no such file\n", 404, media_type="text/plain") if path is None else FileResponse(path)

    async def _campaign_lines(self, request: Request) -> Response:
        return Response(await self._table(), media_type=JSON)

    async def _table(self) -> bytes:
        return b"[%b]" % b",".join([await campaign.line() for campaign in self._campaigns])

    def _answers_to(
        self, question: Callable[..., object], given: Callable[[QueryParams], object] | None = None
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint for a function of `payloads`, of a campaign as it is now or was at a record."""

        async def endpoint(request: Request) -> Response:
            campaign, at = self._asked(request)
            more = () if given is None else (given(request.query_params),)
            if at is not None:
                answered = await self._before(campaign, at, question, *more)
            elif question is state_sent:
                answered = await campaign.state()
            elif question is transition_sent:
                answered = await campaign.transition()
            else:
                answered = await campaign.ask(campaign.followed.records, question, *more)
            return Response(answered, media_type=JSON)

        return endpoint

    async def _otherwise(self, request: Request) -> Response:
        """Return another steerer from a record on: from the first one, where none is named."""
        campaign, at = self._asked(request)
        steerer = request.query_params.get("steerer", "")
        if steerer not in steerer_names():
            raise HTTPException(404, f"`steerer` must be one of {', '.join(steerer_names())}")
        until = campaign.followed.records
        answered = await self._before(campaign, at or 1, other_steerer, steerer, until, by=self._other)
        return Response(answered, media_type=JSON)

    async def _before(
        self, campaign: ShownCampaign, at: int, question: Callable[..., object], *more: object, by: Helper | None = None
    ) -> bytes:
        """Return what another process says of the past, which is kept."""
        key = campaign.number, at, question.__name__, *more
        if key not in self._answers:
            directory = str(campaign.followed.directory)
            self._answers[key] = await (by or self._past)(answer, directory, at, question, *more)
            while len(self._answers) > KEPT:
                del self._answers[next(iter(self._answers))]
        return self._answers[key]

    def _asked(self, request: Request) -> tuple[ShownCampaign, int | None]:
        """Return the campaign, by its place in the list, and the record that a request is about."""
        number, at = request.query_params.get("campaign", "0"), request.query_params.get("at")
        # isdecimal knows other scripts' digits, and int takes them: they are harmless.
        if not number.isdecimal() or len(number) > 6 or int(number) >= len(self._campaigns):
            raise HTTPException(404, f"`campaign` must be one of 0 to {len(self._campaigns) - 1}")
        campaign = self._campaigns[int(number)]
        if at is None:
            return campaign, None
        if not at.isdecimal() or len(at) > 12 or not 0 < int(at) <= campaign.followed.records:
            raise HTTPException(404, f"`at` must be a record, from 1 to {campaign.followed.records}")
        return campaign, int(at)

    async def _control(self, request: Request) -> Response:
        return Response(self.commanding.about(), media_type=JSON)

    async def _command(self, request: Request) -> Response:
        return await self.commanding.post(request, self._asked(request)[0].followed.directory)

    async def _events(self, request: Request) -> Response:
        campaign, _ = self._asked(request)
        if self._streams >= MOST_STREAMS:
            raise HTTPException(503, f"{MOST_STREAMS} pages are open already")
        return StreamingResponse(self._stream(campaign), media_type="text/event-stream")

    async def _stream(self, campaign: ShownCampaign) -> AsyncIterator[bytes]:
        """Yield what is new: the table, the state, word of a new figure. Whoever is slow misses what was between."""
        self._streams += 1
        sent: dict[str, bytes] = {}
        seen: object = None
        spoken = 0.0
        try:
            while not self._closing:
                campaign.renew()
                news = {"transition": encoded(campaign.figure_of if campaign.figure else -1)}
                if seen != campaign.seen:
                    seen = campaign.seen
                    news["campaigns"] = await self._table()
                    try:
                        news["state"] = await campaign.state()
                    except MetalforgeError as error:
                        news["problem"] = encoded(one_line(str(error)))
                fresh = {name: data for name, data in news.items() if sent.get(name) != data}
                for name, data in fresh.items():
                    yield b"event: %b\ndata: %b\n\n" % (name.encode(), data)
                sent |= fresh
                if fresh:
                    spoken = time.monotonic()
                elif time.monotonic() - spoken >= SILENCE_S:
                    spoken = time.monotonic()
                    yield b": still here\n\n"
                await asyncio.sleep(PACE_S if fresh else LOOK_S)
        finally:
            self._streams -= 1


def _problem(request: Request, error: Exception) -> Response:
    """Return an error as JSON with a clear line."""
    status, text = 409, one_line(str(error))
    if isinstance(error, HTTPException):
        status, text = error.status_code, error.detail
    elif isinstance(error, BrokenExecutor):
        status, text = 503, "the process that computes this ended; ask again"
    return Response(encoded({"error": text}), status, media_type=JSON)
