"""The pool of connections to PostgreSQL: a bound on their number and a time limit on every call."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg
from psycopg import errors

from holdfast.errors import StoreUnavailable
from holdfast.store.engine.backend import PoolStats, StoreClosed
from holdfast.store.engine.flags import Flag
from holdfast.store.engine.interrupts import WINDOW_S, deliver, waits_in_windows
from holdfast.store.engine.sockets import shut_down
from holdfast.store.postgres.abandoned_connections import AbandonedConnections
from holdfast.store.postgres.connections import Connection, opened_at

#: One idle connection stays open; the others are closed after this time.
IDLE_TIMEOUT_S = 5.0
#: The first caller in a while that finds every connection in use waits this long before it opens another: the services
#: of an idle worker meet by chance, and then share one connection. Under load connections are opened at once.
GROW_DELAY_S, QUIET_S = 0.01, 1.0
#: The interval at which running calls are checked.
POLL_INTERVAL_S = 0.5


class Pool:
    """Lends connections, opened in the caller's thread: an error comes at once, with its reason.

    - At most *size* are open, abandoned ones included: the server may still work for these.
    - After one broken connection, all idle ones are closed too.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        *,
        size: int,
        patience: float,
        calls: Calls,
        abandoned: AbandonedConnections,
    ) -> None:
        self._connect = connect
        self._size = size
        self._patience = patience
        self._calls = calls
        self._abandoned = abandoned
        self._returned = threading.Condition()
        self._idle: deque[tuple[Connection, float]] = deque()
        #: Connections in use, idle and abandoned.
        self._open = 0
        self._abandoned_count = 0
        self._contended_at = -QUIET_S
        self._waits, self._wait_seconds = 0, 0.0
        self._closed = False
        calls.rests.append(self.close_extra)
        # Earlier than __del__ of the connections, which would warn that they are open.
        weakref.finalize(self, _close_dropped, self._idle).atexit = False

    @contextmanager
    def connection(self, *, limit: float) -> Iterator[Connection]:
        """A connection for one call, which is aborted after *limit* seconds."""
        connection = self._take(time.monotonic() + min(self._patience, limit))
        abandoned = None
        try:
            with self._calls.limited(connection, limit) as call:
                yield connection
        except errors.ReadOnlySqlTransaction:
            connection.close()  # the server is a standby since a failover: the next connection finds the primary
            raise
        except psycopg.OperationalError as error:
            if call.aborted or "timed out" in str(error):
                abandoned = call.pid
            raise
        finally:
            if abandoned is None:
                self._put(connection)
            else:
                self._abandon(connection, abandoned)

    def close(self) -> None:
        """Close idle connections; those in use are closed when they are returned."""
        with self._returned:
            self._closed = True
            self._close_idle(keep=0)
            self._returned.notify_all()

    def stats(self) -> PoolStats:
        """The number of connections by state, and the waits so far."""
        with self._returned:
            idle, abandoned = len(self._idle), self._abandoned_count
            states = {"in_use": self._open - idle - abandoned, "idle": idle, "abandoned": abandoned}
            return PoolStats(states, self._size, self._waits, self._wait_seconds)

    def close_extra(self) -> float | None:
        """Close all idle connections but one after a time; returns the seconds until the next is due."""
        with self._returned:
            self._close_idle(keep=1, longer_than=IDLE_TIMEOUT_S)
            return IDLE_TIMEOUT_S if len(self._idle) > 1 else None

    def _take(self, deadline: float) -> Connection:
        grow_at, waited = None, False
        while True:
            with self._returned:
                grow_at = self._grow_at() if grow_at is None else grow_at
                if self._closed:
                    raise StoreClosed("the store is closed")
                if (connection := self._pop_idle()) is not None:
                    return connection
                if self._open < self._size and time.monotonic() >= grow_at:
                    self._open += 1
                    break
                self._wait(grow_at, deadline)
                self._waits += not waited
            waited = True
            self._deliver()
        try:
            return self._connect()
        except BaseException:
            self._release()
            raise

    def _wait(self, grow_at: float, deadline: float) -> None:
        """Wait until a connection is returned, or another may be opened."""
        now = time.monotonic()
        if now >= deadline:
            raise self._exhausted()
        limit = min(grow_at if now < grow_at else deadline, deadline) - now
        self._returned.wait(min(limit, WINDOW_S) if waits_in_windows() else limit)
        self._wait_seconds += time.monotonic() - now

    def _deliver(self) -> None:
        try:
            deliver()
        except BaseException:
            with self._returned:
                self._returned.notify()  # another thread takes the connection of which this one was notified
            raise

    def _grow_at(self) -> float:
        """When a new connection may be opened, if none is returned before."""
        now = time.monotonic()
        if self._idle or self._open == self._abandoned_count:
            return now
        quiet, self._contended_at = now - self._contended_at > QUIET_S, now
        return now + GROW_DELAY_S if quiet else now

    def _pop_idle(self) -> Connection | None:
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.closed and _is_silent(connection):
                return connection
            connection.close()
            self._open -= 1
        return None

    def _put(self, connection: Connection) -> None:
        usable = not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if usable and not self._closed:
            with self._returned:
                self._idle.append((connection, time.monotonic()))
                self._close_idle(keep=1, longer_than=IDLE_TIMEOUT_S)
                self._returned.notify()
            return
        connection.close()
        self._release()

    def _abandon(self, connection: Connection, pid: int) -> None:
        connection.close()
        with self._returned:
            self._close_idle(keep=0)
            self._abandoned_count += 1
        self._abandoned.add(pid, opened_at=opened_at(connection), closed=self._release_abandoned)

    def _release_abandoned(self) -> None:
        with self._returned:
            self._abandoned_count -= 1
        self._release()

    def _release(self) -> None:
        """A connection is closed; the idle ones may be broken too."""
        with self._returned:
            self._open -= 1
            self._close_idle(keep=0)
            self._returned.notify_all()

    def _close_idle(self, *, keep: int, longer_than: float = 0.0) -> None:
        while len(self._idle) > keep and self._idle[0][1] <= time.monotonic() - longer_than:
            self._idle.popleft()[0].close()
            self._open -= 1

    def _exhausted(self) -> StoreUnavailable:
        if not self._abandoned_count:
            hint = "Run fewer slots in one process, or set connections=N in the URL."
            return StoreUnavailable(f"all {self._size} connections to the database are in use", hint=hint)
        hint = "Does the server wait for a synchronous standby, or is the network broken? See holdfast doctor."
        text = f"{self._abandoned_count} of {self._size} connections got no answer, and are still open on the server"
        return StoreUnavailable(text, hint=hint)


def _close_dropped(idle: deque[tuple[Connection, float]]) -> None:
    """Close the connections of an application that was dropped."""
    while idle:
        idle.popleft()[0].close()


def _is_silent(connection: Connection) -> bool:
    """Whether the server has not ended an idle session. A poll would let busy threads run for 5 ms."""
    try:
        for _ in range(2):  # the first may read the message that announces the end, the second reads the end
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return True


class Call:
    """A running call: its connection, its start and its limit in seconds."""

    __slots__ = ("aborted", "connection", "limit", "pid", "since")

    def __init__(self, connection: Connection, limit: float) -> None:
        self.connection = connection
        self.since = time.monotonic()
        self.limit = limit
        self.aborted = False
        #: A broken connection no longer knows it.
        self.pid = connection.pgconn.backend_pid


class Calls:
    """The running calls. A call past its limit is aborted, and with it those that have waited half as long.

    The thread that checks them ends with this object, which nothing but the backend refers to.
    """

    def __init__(self) -> None:
        #: Called when no call is running; each returns the seconds until its next call.
        self.rests: list[Callable[[], float | None]] = []
        self._running: dict[int, Call] = {}
        self._lock = threading.RLock()  # a finalizer that runs in its block may call the store
        self._has_calls = Flag()
        self._closed = Flag()
        self._watch: threading.Thread | None = None

    @contextmanager
    def limited(self, connection: Connection, limit: float) -> Iterator[Call]:
        if self._watch is None:
            self._start()
        call = self._running[id(connection)] = Call(connection, limit)
        if not self._has_calls.is_set():
            self._has_calls.set()
        try:
            yield call
        finally:
            del self._running[id(connection)]

    def close(self) -> None:
        self._closed.set()
        self._has_calls.set()

    def _start(self) -> None:
        with self._lock:
            if self._watch is None:
                arguments = (weakref.ref(self), self._has_calls, self._closed)
                self._watch = threading.Thread(target=_watch, args=arguments, name="holdfast-calls", daemon=True)
                self._watch.start()

    def __del__(self) -> None:
        self.close()

    def rest(self) -> float | None:
        """Do what is due while no call is running; returns the seconds until the next is due."""
        return min((wait for rest in self.rests if (wait := rest()) is not None), default=None)

    @property
    def running(self) -> bool:
        return bool(self._running)

    def abort_late(self, now: float) -> None:
        """Abort calls past their limit, and those that have waited half as long: the peer is dead for all of them."""
        calls = list(self._running.values())
        late = [call.limit for call in calls if now - call.since > call.limit]
        for call in calls:
            if late and now - call.since > min(late) / 2:
                call.aborted = True
                _hang_up(call.connection)


def _watch(reference: weakref.ref[Calls], has_calls: Flag, closed: Flag) -> None:
    """Check calls until they are closed or gone; no reference keeps them alive while this thread waits."""
    while not closed.is_set() and (calls := reference()) is not None:
        has_calls.clear()
        idle = not calls.running
        limit = calls.rest() if idle else None
        del calls
        if idle:
            has_calls.wait(limit)
        closed.wait(POLL_INTERVAL_S)
        if (calls := reference()) is not None:
            calls.abort_late(time.monotonic())
            del calls


def _hang_up(connection: Connection) -> None:
    """Wake the thread that waits for this connection; it gets a connection error."""
    with suppress(psycopg.Error):
        shut_down(connection.fileno())
