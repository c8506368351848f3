"""Who may look: every request passes here before anything is read.

A page on the loopback interface is reached by every browser of the machine, and so by every web page that one of them
shows. Against that stand: a token that only the terminal has shown, exchanged for a cookie that other sites' requests
do not carry; the Host header, which names the attacker's domain after DNS rebinding; the Origin header, which names
the page that asks; and a policy by which the page loads nothing from elsewhere and nothing that stands in a text.
"""

import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .commanding import Commanding

LOOPBACK = {"localhost", "127.0.0.1", "::1"}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# A redirect would go on as a request of whoever sent the browser here, without the cookie; a page asks for itself.
WELCOME = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=./"><title>metalforge</title>'
    '<link rel="icon" href="page/icon.svg" type="image/svg+xml">'
)
NO_TOKEN = "this page is for whoever started it: open the address that `metalforge dashboard` printed, with its token\n"


class Guard:
    """Lets requests through that are from the page itself, in a browser that has shown the token."""

    def __init__(self, app: ASGIApp, token: str, host: str, port: int, commanding: Commanding) -> None:
        self._app, self._commanding = app, commanding
        self._token = token
        self._session = secrets.token_urlsafe(32)
        # Cookies do not tell ports apart: two pages on one machine need two names.
        self._cookie = f"metalforge-{port}"
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer for the app, or let it answer, always with the headers."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no web sockets: the connection is closed

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = self._refusal(scope)
        await (self._app if refused is None else refused)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if scope["method"] != "GET":
            refused = self._commanding.refusal(scope["method"], scope["path"], headers)
            if refused is not None:
                return refused
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._knows(host):
            return PlainTextResponse("not this machine's name\n", 421)
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return PlainTextResponse("asked by another page\n", 403)
        shown = QueryParams(scope["query_string"]).get("token")
        if shown is not None and scope["path"] == "/" and scope["method"] == "GET":
            if not hmac.compare_digest(shown.encode(), self._token.encode()):
                return PlainTextResponse("not the token\n", 403)
            welcome = HTMLResponse(WELCOME)
            # The path is the page's own, which behind a proxy is not the root.
            welcome.set_cookie(self._cookie, self._session, path=None, httponly=True, samesite="strict")
            return welcome
        if not hmac.compare_digest(self._cookie_of(headers).encode(), self._session.encode()):
            return PlainTextResponse(NO_TOKEN, 403)
        return None

    def _cookie_of(self, headers: Headers) -> str:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value

    def _knows(self, host: str) -> bool:
        """Return whether a Host header names this machine: no domain that somebody else has pointed here.

        Any port will do, since `ssh -L` may give another one. Numbers are no domain: where all addresses are listened
        on, any of them may be meant.
        """
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in LOOPBACK or name == self._host:
            return True
        try:
            ip_address(name)
            return ip_address(self._host).is_unspecified
        except ValueError:
            return False
