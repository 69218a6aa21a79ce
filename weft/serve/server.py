"""The server itself: uvicorn, with limits on how a request may arrive, and an end that loses none.

On a signal readiness becomes false, and for a moment all goes on, so that those who send requests find out.
Then the server takes the last connections that wait and stops listening; each further answer closes its
connection, and one that is quiet is closed after another moment. When all requests are answered it ends;
those that take longer than the grace time are answered with an error, and their runs stopped. A second signal
ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weft.serve.app import App

BACKLOG = 2048
LONGEST_HEAD = 1 << 16  # bytes of the first line and the headers of a request
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Connection(HttpToolsProtocol):
    """A connection whose requests must arrive in time."""

    _started = False  # whether the head of a request has begun and not ended
    _receiving = False  # whether its body has not ended
    _head = 0
    _timer: asyncio.TimerHandle | None = None
    _draining = False

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time."""
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; the head of a request must not be too long, and all of it must come in time."""
        super().data_received(data)
        if self._started:
            self._head += len(data)
            if self._head > LONGEST_HEAD and not self.transport.is_closing():
                self.send_400_response("The head of the request is too long.")
        if not (self._started or self._receiving):
            self._unwatch()
        elif self._timer is None:
            self._watch()

    def on_message_begin(self) -> None:
        """The head of a request begins."""
        super().on_message_begin()
        self._started, self._head = True, 0

    def on_headers_complete(self) -> None:
        """The head has ended."""
        self._started, self._receiving = False, True
        super().on_headers_complete()
        if self._draining and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """The body has ended."""
        self._receiving = False
        super().on_message_complete()

    def shutdown(self) -> None:
        """Answer what has arrived and what is on its way, then end."""
        self._draining = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        else:
            self.loop.call_later(self._settings.drain, self._close_if_idle)

    def _close_if_idle(self) -> None:
        idle = self.cycle is None or self.cycle.response_complete
        if idle and not self._started and not self.transport.is_closing():
            self.transport.close()

    @property
    def _settings(self) -> Any:
        return self.config.app.settings  # type: ignore[union-attr]

    def _watch(self) -> None:
        self._timer = self.loop.call_later(self._settings.read_timeout, self._too_slow)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """A server that ends as it should.

    Attributes:
        forced: whether a second signal ended it.
    """

    def __init__(self, config: uvicorn.Config, app: App, told: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._told = told

    @property
    def forced(self) -> bool:
        """Whether requests may be left without an answer."""
        return self.force_exit

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and tell."""
        await super().startup(sockets)
        self._told()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End: in order at the first signal, at once at the second."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True
        self._app.is_ready = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Have signals handled here, and by nobody else afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let requests that are on their way arrive, then stop listening and answer the last ones."""
        self._app.is_ready = False
        loop = asyncio.get_running_loop()
        end = loop.time() + self._app.settings.drain
        while loop.time() < end and not self.force_exit:
            await asyncio.sleep(0.02)
        waiting = [accepted for sock in sockets or [] for accepted in _accept_all(sock)]
        for server in self.servers:
            server.close()  # at once: the system resets what it has connected since
        self._app.is_ending = True
        for accepted in waiting:
            await loop.connect_accepted_socket(
                lambda: Connection(self.config, self.server_state, self.lifespan.state), accepted
            )
        stop = loop.call_later(self._app.settings.grace, self._app.stop, "the server ends")
        await super().shutdown(sockets)
        stop.cancel()
        if self.force_exit:
            for connection in list(self.server_state.connections):
                connection.transport.abort()


def _accept_all(sock: socket.socket) -> list[socket.socket]:
    """The connections that the system has made and that nobody has taken yet."""
    found: list[socket.socket] = []
    with contextlib.suppress(OSError):
        while True:
            accepted, _ = sock.accept()
            found.append(accepted)
            accepted.setblocking(False)
    return found


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; with port 0 the system chooses one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, or each answer waits 40 ms
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise OSError(
                error.errno, f"{error.strerror} (choose another --port, or 0 for any)", f"{host}:{port}"
            ) from None
        raise
    sock.setblocking(False)
    return sock


def address_of(sock: socket.socket, host: str) -> str:
    """The address that a socket listens at."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{sock.getsockname()[1]}"


def serve_app(app: App, host: str, port: int, told: Callable[[str], None]) -> bool:
    """Serve until a signal ends it; whether all requests were answered.

    Args:
        app: to serve.
        host, port: where to listen.
        told: is called with the address when it listens.
    """
    with listen(host, port) as sock:
        return serve_socket(app, sock, lambda: told(address_of(sock, host)))


def serve_socket(app: App, sock: socket.socket, told: Callable[[], None]) -> bool:
    """Serve at a socket that listens, until a signal ends it; whether all requests were answered."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        lifespan="on",
        backlog=BACKLOG,
        timeout_keep_alive=75,
    )
    server = Server(config, app, told)
    gc.collect()
    gc.freeze()  # what is loaded stays: each full collection would look at it for 20 ms
    try:
        server.run([sock])
    finally:
        gc.unfreeze()
    return not server.forced
