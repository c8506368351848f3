"""The server: journals are followed in the background, requests get what is known, streams what is new."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from metalforge.campaign import one_line, steerer_names
from metalforge.core import MetalforgeError, SpecError

from .commanding import PATH, Commanding
from .following import Followed
from .guarding import Guard
from .helpers import Helper, answer, other_steerer, timed_transition
from .payloads import campaign_line, chain_sent, decisions_sent, encoded, machine_sent, state_sent, transition_sent

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
MINUTE_S = 60.0
"""What a timeline shows that is asked for its last minute."""
KEPT = 64
"""Answers about the past that are kept: they do not change."""

Answer = TypeVar("Answer")


class Refused(Exception):  # noqa: N818 - an answer, with its status
    """What was asked for is not there."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


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
        self._shared: dict[str, tuple[object, bytes]] = {}

    @property
    def seen(self) -> tuple[int, int, str]:
        """What changes whenever there is something new to say."""
        return self.followed.records, int(time.time() / TICK_S), self.followed.problem

    async def ask(self, question: Callable[[Followed], Answer]) -> Answer:
        """Return what a function makes of the fold, in a thread, while nobody changes it."""
        async with self._lock:
            return await asyncio.to_thread(question, self.followed)

    async def shared(self, name: str, of: object, question: Callable[[Followed], object]) -> bytes:
        """Return an answer as JSON that stays as long as what it is of: many streams share it."""
        if name not in self._shared or self._shared[name][0] != of:
            self._shared[name] = of, await self.ask(lambda followed: encoded(question(followed)))
        return self._shared[name][1]

    async def state(self) -> bytes:
        """Return the state now."""
        return await self.shared("state", self.seen, lambda followed: state_sent(followed, time.time()))

    async def line(self) -> bytes:
        """Return the line of the table."""
        return await self.shared("line", self.seen, lambda followed: campaign_line(self.number, time.time(), followed))

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
            Route("/campaigns", _answered(self._table)),
            Route("/state", _answered(self._state)),
            Route("/decisions", _answered(self._decisions)),
            Route("/chain", _answered(self._chain)),
            Route("/machine", _answered(self._machine)),
            Route("/transition", _answered(self._transition)),
            Route("/otherwise", _answered(self._otherwise)),
            Route("/control", _answered(self._control)),
            Route(PATH, self._command, methods=["POST"]),
            Route("/events", self._events),
        ]
        return Starlette(routes=routes, lifespan=self._lifespan)

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
            await campaign.ask(Followed.advance)
            await asyncio.sleep(0 if campaign.followed.behind else LOOK_S)

    async def _index(self, request: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    async def _file(self, request: Request) -> Response:
        path = FILES.get(request.path_params["name"])
        return Response("there is no such file\n", 404, media_type="text/plain") if path is None else FileResponse(path)

    async def _table(self, request: Request | None = None) -> bytes:
        return b"[%b]" % b",".join([await campaign.line() for campaign in self._campaigns])

    async def _state(self, request: Request) -> bytes:
        campaign, at = self._asked(request)
        return await (campaign.state() if at is None else self._before(campaign, at, state_sent))

    async def _decisions(self, request: Request) -> bytes:
        campaign, at = self._asked(request)
        if at is not None:
            return await self._before(campaign, at, decisions_sent)
        return await campaign.shared("decisions", len(campaign.followed.decided), decisions_sent)

    async def _chain(self, request: Request) -> bytes:
        campaign, at = self._asked(request)
        name = request.query_params.get("chain", "")
        if at is not None:
            return await self._before(campaign, at, chain_sent, name)
        return await campaign.ask(lambda followed: encoded(chain_sent(followed, name)))

    async def _machine(self, request: Request) -> bytes:
        campaign, at = self._asked(request)
        last_s = MINUTE_S if request.query_params.get("span") == "minute" else None
        if at is not None:
            return await self._before(campaign, at, machine_sent, last_s)
        of = campaign.followed.records
        return await campaign.shared(f"machine {last_s}", of, lambda followed: machine_sent(followed, last_s))

    async def _transition(self, request: Request) -> bytes:
        campaign, at = self._asked(request)
        return await (campaign.transition() if at is None else self._before(campaign, at, transition_sent))

    async def _otherwise(self, request: Request) -> bytes:
        """Return another steerer from a record on: from the first one, where none is named."""
        campaign, at = self._asked(request)
        steerer = request.query_params.get("steerer", "")
        if steerer not in steerer_names():
            raise Refused(404, f"`steerer` must be one of {', '.join(steerer_names())}")
        until = campaign.followed.records
        return await self._before(campaign, at or 1, other_steerer, steerer, until, by=self._other)

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
            raise Refused(404, f"`campaign` must be one of 0 to {len(self._campaigns) - 1}")
        campaign = self._campaigns[int(number)]
        if at is None:
            return campaign, None
        if not at.isdecimal() or len(at) > 12 or not 0 < int(at) <= campaign.followed.records:
            raise Refused(404, f"`at` must be a record, from 1 to {campaign.followed.records}")
        return campaign, int(at)

    async def _control(self, request: Request) -> bytes:
        return self.commanding.about()

    async def _command(self, request: Request) -> Response:
        try:
            campaign, _ = self._asked(request)
        except Refused as refused:
            return _problem(refused.status, str(refused))
        return await self.commanding.post(request, campaign.followed.directory)

    async def _events(self, request: Request) -> Response:
        try:
            campaign, _ = self._asked(request)
        except Refused as refused:
            return _problem(refused.status, str(refused))
        if self._streams >= MOST_STREAMS:
            return _problem(503, f"{MOST_STREAMS} pages are open already")
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


def _answered(ask: Callable[[Request], Awaitable[bytes]]) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that gives JSON, and a clear line where it cannot."""

    async def endpoint(request: Request) -> Response:
        try:
            return Response(await ask(request), media_type="application/json")
        except Refused as refused:
            return _problem(refused.status, str(refused))
        except MetalforgeError as error:
            return _problem(409, one_line(str(error)))
        except BrokenExecutor:
            return _problem(503, "the process that computes this ended; ask again")

    return endpoint


def _problem(status: int, text: str) -> Response:
    return Response(encoded({"error": text}), status, media_type="application/json")


def guarded_app(server: Server, token: str, host: str, port: int) -> Guard:
    """Return what uvicorn serves."""
    return Guard(server.app(), token, host, port, server.commanding)
