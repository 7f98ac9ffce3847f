"""A proxy before PostgreSQL that loses answers (the server has done the work, the client never hears of it), is slow,
or falls silent."""

from __future__ import annotations

import random
import re
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_LENGTH = struct.Struct("!I")


class Proxy:
    """Passes connections on to the server at *url*; clients use :attr:`url` instead."""

    def __init__(self, url: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="holdfast-proxy-"))
        self._server = url
        self.url = make_conninfo(url, host=str(self._directory), port="5432")
        self.cuts = 0
        self._losing: list[str] = []
        self._acts: list[tuple[str, Callable[[], None], threading.Event]] = []
        #: A lost answer lacks only its end, by which the server says that it has committed.
        self.keeps_rows = False
        self._swallowing = threading.Event()
        self._age = 0
        #: Of so many answers one is lost, by chance; 0 means none.
        self._chance = 0.0
        self._random = random.Random()
        #: How long each message is under way, in seconds; and how long one of so many, by chance.
        self.delay = 0.0
        self.late = (0.0, 0.0)
        self._never = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._directory / ".s.PGSQL.5432"))
        self._listener.listen()
        self._start(self._accept)

    @property
    def uri(self) -> str:
        """The same as a URL."""
        return f"postgresql:///?{urlencode(conninfo_to_dict(self.url))}"

    def lose_answer(self, query: str, *, times: int = 1) -> None:
        """Cut the connection that next sends *query* (a part of its text), once the server has answered."""
        with self._lock:
            self._losing += [query] * times

    def meanwhile(self, query: str, act: Callable[[], None]) -> threading.Event:
        """Let somebody *act* before the next *query* (a part of its text) reaches the server; is set afterwards."""
        done = threading.Event()
        with self._lock:
            self._acts.append((query, act, done))
        return done

    def lose_some(self, chance: float, *, seed: int = 1) -> None:
        """From now on each answer is lost by this chance, together with its connection."""
        with self._lock:
            self._random = random.Random(seed)
            self._chance = chance

    def lead_to(self, url: str) -> None:
        """Pass new connections on to another server; those of before are cut."""
        with self._lock:
            self._server = url
            for end in self._open:
                _hang_up(end)

    def take_time(self) -> None:
        """A message to the server is under way. It arrives even if its sender has hung up meanwhile."""
        chance, seconds = self.late
        if chance and self._random.random() < chance:
            self._never.wait(seconds)
        elif self.delay:
            self._never.wait(self.delay)

    def black_hole(self) -> None:
        """From now on nothing that is sent arrives anywhere, and nobody is told."""
        self._swallowing.set()

    def heal(self) -> None:
        """New connections work again. Those of before stay as they are: open, and silent for ever."""
        with self._lock:
            self._age += 1
        self._swallowing.clear()

    def swallows(self, age: int) -> bool:
        """Whether what is sent over a connection of that age is lost."""
        return self._swallowing.is_set() or age != self._age

    @property
    def age(self) -> int:
        return self._age

    def close(self) -> None:
        # A shutdown wakes the thread that accepts; a close alone would not.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for end in self._open:
                _hang_up(end)
        for thread in [*self._threads]:
            thread.join(10)
        for end in [*self._open]:
            end.close()
        shutil.rmtree(self._directory)

    def wants_to_lose(self, query: str) -> bool:
        """Whether the answer to *query* is to be lost; each order is carried out once."""
        with self._lock:
            for order in self._losing:
                if _names(order, query):
                    self._losing.remove(order)
                    return True
            if not self._chance or self._random.random() >= self._chance:
                return False
            self.keeps_rows = self._random.random() < 0.5
            return True

    def act_before(self, query: str) -> None:
        """Whatever is to happen before *query*; each act once."""
        with self._lock:
            due = [order for order in self._acts if _names(order[0], query)]
            self._acts = [order for order in self._acts if order not in due]
        for _, act, done in due:
            act()
            done.set()

    def has_cut(self) -> None:
        with self._lock:
            self.cuts += 1

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = _connect(self._server)
                except OSError:  # the server is down, the proxy is not
                    client.close()
                    continue
                with self._lock:
                    self._open |= {client, server}
                session = _Session(self, client, server)
                self._start(session.forward)
                self._start(session.answer)

    def forget(self, *ends: socket.socket) -> None:
        """Close the ends of a connection that is over: a campaign makes tens of thousands of them."""
        with self._lock:
            self._open -= {*ends}
            for end in ends:
                end.close()

    def _start(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            finally:
                self._threads.discard(thread)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.add(thread)
        thread.start()


class _Session:
    """One connection, read message by message in both directions."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._prepared: dict[bytes, str] = {}
        self._losing = threading.Event()
        self._age = proxy.age
        #: Taken by the direction that ends first.
        self._first_end = threading.Lock()

    def forward(self) -> None:
        """From the client to the server. The first message, the startup, has no type."""
        with self._hanging_up():
            startup = _untyped(self._client)
            if not self._proxy.swallows(self._age):
                self._server.sendall(startup)
            while True:
                kind, message = _typed(self._client)
                if self._proxy.swallows(self._age):
                    continue
                query = self._query(kind, message[5:])
                if query is not None:
                    self._proxy.act_before(query)
                    if self._proxy.wants_to_lose(query):
                        self._losing.set()
                self._proxy.take_time()
                self._server.sendall(message)

    def answer(self) -> None:
        """From the server to the client, up to the answer that is to be lost."""
        with self._hanging_up():
            while True:
                kind, message = _typed(self._server)
                if self._proxy.swallows(self._age):
                    continue
                if not self._losing.is_set() or (self._proxy.keeps_rows and kind != b"Z"):
                    self._client.sendall(message)
                elif kind == b"Z":  # ready for the next query: this one is over, and committed
                    self._proxy.has_cut()
                    return

    def _query(self, kind: bytes, body: bytes) -> str | None:
        """The text of the query that a message runs: at once (Q), or by a bind (B) to a parsed one (P)."""
        if kind == b"Q":
            return body[:-1].decode()
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._prepared[name] = text.decode()
        if kind == b"B":
            return self._prepared[body.split(b"\0", 2)[1]]
        return None

    @contextmanager
    def _hanging_up(self) -> Iterator[None]:
        """When one direction ends, so does the other."""
        try:
            with suppress(OSError, EOFError):
                yield
        finally:
            _hang_up(self._client)
            _hang_up(self._server)
            if not self._first_end.acquire(blocking=False):
                self._proxy.forget(self._client, self._server)


@contextmanager
def proxy_to(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()


def _names(order: str, query: str) -> bool:
    """Whether an order means *query*. Whole words: COMMIT is no part of READ COMMITTED."""
    before = r"(?<!\w)" if re.match(r"\w", order) else ""
    after = r"(?!\w)" if re.search(r"\w$", order) else ""
    return re.search(f"{before}{re.escape(order)}{after}", query) is not None


def _connect(url: str) -> socket.socket:
    where = conninfo_to_dict(url)
    host, port = str(where.get("host") or "localhost"), int(where.get("port") or 5432)
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.connect(f"{host}/.s.PGSQL.{port}")
    return server


def _typed(end: socket.socket) -> tuple[bytes, bytes]:
    kind = _exactly(end, 1)
    return kind, kind + _untyped(end)


def _untyped(end: socket.socket) -> bytes:
    length = _exactly(end, _LENGTH.size)
    return length + _exactly(end, _LENGTH.unpack(length)[0] - _LENGTH.size)


def _exactly(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = end.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _hang_up(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
