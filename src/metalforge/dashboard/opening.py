"""Opening the page: an address, a token, what is printed, and the server until it is told to end."""

import getpass
import logging
import os
import secrets
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from html import escape
from ipaddress import ip_address
from pathlib import Path

import uvicorn

from metalforge.core import SpecError, naming

from .guarding import Guard
from .server import Server

SHORTEST_TOKEN = 16
STREAMS_END_S = 2


class OpenPage(uvicorn.Server):
    """A page that is ready to be served: `address` is where it is, `token` opens it.

    It says when it answers, and lets its streams end before it waits for them.
    """

    def __init__(
        self, config: uvicorn.Config, page: Server, listening: socket.socket, address: str, token: str
    ) -> None:
        super().__init__(config)
        self._page = page
        self.listening = listening
        self.address, self.token = address, token
        self.when_ready: Callable[[], object] = lambda: None
        """Called when requests are answered."""

    @property
    def link(self) -> str:
        """The address that opens it."""
        return f"{self.address}?token={self.token}"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until somebody says that it is enough."""
        super().run(sockets or [self.listening])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin."""
        await super().startup(sockets)
        self.when_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End; streams that are cut short by it are no errors that a terminal should be filled with."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._page.close()
        await super().shutdown(sockets)


def open_page(
    directories: Sequence[Path],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token_file: Path | None = None,
    control: bool = False,
) -> OpenPage:
    """Listen for a page on these campaigns; another address than the loopback's needs a token of one's own.

    With `control` it may command them; without, it only reads.
    """
    for directory in directories:
        if not directory.is_dir():
            raise SpecError(
                f"{directory}: no such directory\nhint: metalforge scan --out {directory} begins a campaign"
            )
    if not is_loopback(host) and token_file is None:
        raise SpecError(
            f"`--host {host}` can be reached from other machines, and needs a token of your own: `--token-file FILE`\n"
            "hint: leave --host out and reach it by ssh -L, which is encrypted"
        )
    token = secrets.token_urlsafe(32) if token_file is None else _token_of(token_file)
    listening = _listening(host, port)
    port = listening.getsockname()[1]
    server = Server(directories, control=control)
    # No log: it would hold the token.
    config = uvicorn.Config(
        Guard(server.app(), token, host, port, server.commanding),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=STREAMS_END_S,
        ws="none",
    )
    name = f"[{host}]" if ":" in host else host
    return OpenPage(config, server, listening, f"http://{name}:{port}/", token)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _token_of(path: Path) -> str:
    with naming(path):
        token = path.read_text().strip()
        if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.replace("-", "").replace("_", "").isalnum():
            raise SpecError(
                f"the token must be at least {SHORTEST_TOKEN} letters, digits, - or _. Got {len(token)} characters\n"
                f"hint: (umask 077; openssl rand -hex 32 > {path})"
            )
    return token


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise SpecError(f"cannot listen on {host}, port {port}: {error}\nhint: --port 0 takes a free one") from error


def serve(
    directories: Sequence[Path],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token_file: Path | None = None,
    browser: bool = True,
    control: bool = False,
    say: Callable[[str], object] | None = None,
) -> None:
    """Serve the page until Ctrl-C, and say how it is opened, from here and from elsewhere: on stderr, or to `say`."""
    page = open_page(directories, host=host, port=port, token_file=token_file, control=control)
    with page.listening, suppress(KeyboardInterrupt), ExitStack() as until_the_end:

        def ready() -> None:
            (say or _tell)("".join(f"{line}\n" for line in _said(page, host, own_token=token_file is not None)))
            until_the_end.enter_context(_shown(page.link, browser))

        page.when_ready = ready
        page.run()


def _tell(lines: str) -> None:
    sys.stderr.write(f"{lines}Ctrl-C ends the page; campaigns go on\n")
    sys.stderr.flush()


def _said(page: OpenPage, host: str, *, own_token: bool) -> Iterator[str]:
    port = page.listening.getsockname()[1]
    yield f"live page: {page.address}?token=..." if own_token else f"live page: {page.link}"
    if is_loopback(host):
        there = f"{getpass.getuser()}@{socket.gethostname()}"
        yield f"from another machine: ssh -L {port}:127.0.0.1:{port} {there}, then the same address there"
    else:
        yield f"warning: {host} is reached from other machines unencrypted: whoever is on the way reads the token"


@contextmanager
def _shown(link: str, wanted: bool) -> Iterator[None]:
    """Open the page in a browser, where there is one with a screen.

    Others on the machine see the command lines of processes: the browser gets a file of ours that leads on.
    """
    screen = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if not (wanted and screen and sys.stderr.isatty()):
        yield
        return
    with tempfile.NamedTemporaryFile("w", suffix=".html") as leads_on:
        leads_on.write(f'<meta charset="utf-8"><meta http-equiv="refresh" content="0;url={escape(link)}">')
        leads_on.flush()
        webbrowser.open(Path(leads_on.name).as_uri())
        yield
