"""The server of ``holdfast web``. It binds its address at once, so that the port is known before it serves."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.domain.names import is_loopback, parse_address
from holdfast.errors import ConfigurationError
from holdfast.store.engine.forks import close_in_forks
from holdfast.store.engine.sockets import new_socket
from holdfast.web.app import Site
from holdfast.web.options import make_options

if TYPE_CHECKING:
    from holdfast.app import Holdfast

#: Connections that wait to be accepted.
BACKLOG = 128
#: Time for open requests when the server stops.
GRACE_S = 5
#: Time for the headers of a request, from the connection or from the answer before.
HEADER_TIMEOUT_S = 15.0
#: Connections without a request. Beyond it, the one that has waited longest is closed: a client in earnest sends its
#: request at once.
MAX_WAITING = 256


class WaitingLine:
    """The connections of one server that have no complete request, the oldest first, with limits of time and length.

    A client that opens many connections and sends its headers slowly, or never, would otherwise keep others out.
    """

    def __init__(self) -> None:
        self._timers: dict[Connection, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def add(self, connection: Connection) -> None:
        self.remove(connection)
        self._timers[connection] = connection.loop.call_later(HEADER_TIMEOUT_S, self._close, connection)
        if len(self._timers) > MAX_WAITING:
            self._close(next(iter(self._timers)))

    def remove(self, connection: Connection) -> None:
        if (timer := self._timers.pop(connection, None)) is not None:
            timer.cancel()

    def _close(self, connection: Connection) -> None:
        self.remove(connection)
        connection.transport.abort()


class Connection(H11Protocol):
    """One connection. It is in the line whenever it has no request."""

    def __init__(self, *args: Any, line: WaitingLine, **options: Any) -> None:
        super().__init__(*args, **options)
        self._line = line

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._line.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._line.remove(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._line.remove(self)

    def on_response_complete(self) -> None:
        if not self.transport.is_closing():
            self._line.add(self)  # first: what follows may handle the next request already
        super().on_response_complete()


class _UvicornServer(uvicorn.Server):
    """Ends the streams of open pages before it waits for requests: streams never end by themselves."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.ssl is not None:
            loop = asyncio.get_running_loop()
            # A client that does not finish its handshake is not in the line yet.
            limited = partial(loop.create_server, ssl_handshake_timeout=HEADER_TIMEOUT_S)
            loop.create_server = limited  # type: ignore[method-assign]
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._site.live.close()
        await super().shutdown(sockets)


class Server:
    """A site on one address."""

    def __init__(
        self,
        app: Holdfast,
        address: str,
        *,
        hosts: list[str] | None = None,
        tls: tuple[str, str] | None = None,
        secure: bool = False,
        **options: Any,
    ) -> None:
        """Listen on *address*; port 0 takes any that is free. *tls* names the files of a certificate and its key.

        Raises:
            ConfigurationError: The address cannot be used, or no person could sign in there.
        """
        host, port = parse_address(address)
        self.is_local = is_loopback(host)
        if not self.is_local and not options.get("proxy_header") and not app.store.credentials.exist():
            hint = "Create a token first: holdfast token add NAME --role admin. Or listen on 127.0.0.1."
            raise ConfigurationError(f"no one could sign in on {host}: the store has no token", hint=hint)
        names = [*(hosts or []), *([] if host in ("0.0.0.0", "::") else [f"[{host}]" if ":" in host else host])]  # noqa: S104
        self.site = Site(app, make_options(hosts=names, secure=secure or tls is not None, **options))
        config = _configure(self.site, tls)
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{self.port}"
        self._server = _UvicornServer(config, self.site)
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serve until a signal, or :meth:`stop`."""
        # uvicorn raises the signal again after an orderly shutdown.
        with suppress(KeyboardInterrupt):
            self._server.run(sockets=[self._socket])

    def start(self) -> None:
        """Serve in a thread, next to a worker whose signals end both."""
        self._thread = threading.Thread(target=self.run, name="holdfast-web", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End streams and requests, then stop; idempotent."""
        self.site.live.close()
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(2 * GRACE_S)

    def close(self) -> None:
        """Release the address and the store of a server that does not run."""
        self._socket.close()
        self.site.close()


def _configure(site: Site, tls: tuple[str, str] | None) -> uvicorn.Config:
    config = uvicorn.Config(
        site,
        log_config=None,
        access_log=False,
        # Headers of proxies are trusted by WebOptions.proxy_from alone.
        proxy_headers=False,
        server_header=False,
        # Requests are limited by the site, connections without a request by the line. uvicorn's own limit counts both,
        # and refuses health checks, too.
        http=partial(Connection, line=WaitingLine()),  # type: ignore[arg-type]
        ws="none",
        # The number of connections that asyncio accepts before it handles any: it must stay below the open files.
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=int(HEADER_TIMEOUT_S),
        lifespan="on",
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
    )
    try:
        config.load()  # uvicorn itself would end the process later, without a reason
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        files = " and ".join(tls or ())
        raise ConfigurationError(f"the certificate or its key cannot be used ({files}): {error}") from None
    return config


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = new_socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        hint = "Is another dashboard using the port? Port 0 takes any that is free."
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error}", hint=hint) from None
    bound.listen(BACKLOG)
    close_in_forks(bound)
    return bound
