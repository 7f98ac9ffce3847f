"""Connections of clients: those that have sent no complete request wait in a line with limits of time and length.

A client that opens many connections and sends its headers slowly, or never, would otherwise keep others out.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Time for the headers of a request, from the connection or from the answer before.
HEADER_TIMEOUT_S = 15.0
#: Connections without a request. Beyond it, the one that has waited longest is closed: a client in earnest sends its
#: request at once.
MAX_WAITING = 256


class WaitingLine:
    """The connections of one server that have no request, the oldest first."""

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
