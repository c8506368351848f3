"""Commands from the page, where it was started with `--control`: each goes to the campaign's socket, which answers.

A request that changes something must come from the page itself. Beside the cookie, which other sites' requests do not
carry, it has the Origin of the page, a header that no form can set, with a value that only the page can have read, and
a body that no form can send.
"""

import asyncio
import hmac
import secrets
from pathlib import Path

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from metalforge.campaign import ANY, MOST_BYTES, Command, ControlError, one_line, send, steerer_names
from metalforge.core import MetalforgeError

from .payloads import encoded

PATH = "/command"
HEADER = "x-metalforge-csrf"
BODY_S, ANSWER_S = 10.0, 20.0
"""That a browser has for its request, and a campaign for its answer; the journal has it where that takes longer."""
JSON = "application/json"
AT_ONCE = 4
"""Commands that wait for an answer; threads are shared with everything else that the page does."""
READ_ONLY = "this page only reads: start it with `metalforge dashboard --control` to command campaigns\n"


class Posted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request."""

    what: str
    asked: dict[str, str] = {}


class Commanding:
    """Whether the page may command campaigns, and how it proves that it is the page."""

    def __init__(self, allowed: bool = False) -> None:
        self.allowed = allowed
        self._value = secrets.token_urlsafe(32)
        self._waiting = 0

    def refusal(self, method: str, path: str, headers: Headers) -> Response | None:
        """Return why a request that does not only read is refused; None where it is a command of the page.

        Its cookie and its Host are looked at by whoever asks.
        """
        if method != "POST" or path != PATH:
            return PlainTextResponse(f"only GET here; commands are posted to {PATH}\n", 405, {"Allow": "GET"})
        if not self.allowed:
            return PlainTextResponse(READ_ONLY, 405, {"Allow": "GET"})
        if headers.get("origin") is None:
            return PlainTextResponse("a command says which page it comes from\n", 403)
        shown = headers.getlist(HEADER)
        if len(shown) != 1 or not hmac.compare_digest(shown[0].encode(), self._value.encode()):
            return PlainTextResponse(f"a command has the value of {HEADER} that the page was given\n", 403)
        if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            return PlainTextResponse("a command is JSON\n", 415)
        return None

    def about(self) -> bytes:
        """Return the steerers for each target, and what the page needs to command: nothing where it may not."""
        steerers = {"steerers": {target: steerer_names(target) for target in ANY}}
        if not self.allowed:
            return encoded(steerers | {"allowed": False, "why": one_line(READ_ONLY)})
        return encoded(steerers | {"allowed": True, "why": "", "header": HEADER, "value": self._value})

    async def post(self, request: Request, directory: Path) -> Response:
        """Return what a campaign says to a command."""
        try:
            async with asyncio.timeout(BODY_S):
                body = await _body(request)
            posted = msgspec.json.decode(body, type=Posted)
            command = msgspec.convert(msgspec.to_builtins(posted) | {"through": "page"}, Command)
        except (TimeoutError, ClientDisconnect):
            raise HTTPException(408, "the command did not come") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, MetalforgeError) as error:
            raise HTTPException(400, f"not a command: {one_line(str(error))}") from error
        if self._waiting >= AT_ONCE:
            raise HTTPException(503, f"{AT_ONCE} commands wait for their answers already")
        self._waiting += 1
        try:
            return Response(encoded(await asyncio.to_thread(send, directory, command, ANSWER_S)), media_type=JSON)
        except MetalforgeError as error:
            raise HTTPException(409 if isinstance(error, ControlError) else 400, one_line(str(error))) from error
        finally:
            self._waiting -= 1


async def _body(request: Request) -> bytes:
    """Return the body, as long as a command may be and no longer, whatever length was announced."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise HTTPException(413, f"a command has {MOST_BYTES} bytes at most")
    return body
