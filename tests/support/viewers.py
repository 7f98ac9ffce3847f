"""Viewers of live pages: each keeps a stream open and fetches its page again after every event, as a browser does."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

from holdfast import Holdfast
from holdfast.domain.access.roles import Role
from holdfast.web.request import LIVE_HEADER
from holdfast.web.security.sessions import COOKIE

#: A page, and the role of those who watch it.
Watched = tuple[str, Role]


class Viewer:
    """One person with a session of their own. *reloads* has the status and the seconds of every reload."""

    def __init__(self, app: Holdfast, port: int, name: str, watched: Watched) -> None:
        self.path, role = watched
        self._port = port
        self._cookie = app.store.sessions.open(name, role, lifetime=timedelta(hours=1))
        self.reloads: list[tuple[int, float]] = []
        self.etag = ""
        self.opened = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(60)

    def _watch(self) -> None:
        with closing(self._connect()) as stream, closing(self._connect()) as pages:
            stream.request("GET", "/live", headers=self._headers())
            lines = stream.getresponse()
            while line := lines.readline():
                self.opened.set()
                if line.startswith(b"event: changed"):
                    self._reload(pages)

    def _reload(self, pages: http.client.HTTPConnection) -> None:
        begun = time.perf_counter()
        headers = {LIVE_HEADER: "1", "If-None-Match": self.etag, "Accept-Encoding": "gzip"}
        pages.request("GET", self.path, headers={**self._headers(), **headers})
        answer = pages.getresponse()
        answer.read()
        self.etag = answer.headers.get("ETag", "")
        self.reloads.append((answer.status, time.perf_counter() - begun))

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)

    def _headers(self) -> dict[str, str]:
        return {"Host": f"localhost:{self._port}", "Cookie": f"{COOKIE}-{self._port}={self._cookie}"}


@contextmanager
def watching(app: Holdfast, port: int, watched: list[Watched], count: int) -> Iterator[list[Viewer]]:
    """*count* viewers, divided among pages, whose streams are open. They leave when the server ends the streams."""
    viewers = [Viewer(app, port, f"viewer-{number}", watched[number % len(watched)]) for number in range(count)]
    for viewer in viewers:
        if not viewer.opened.wait(60):
            raise TimeoutError("a stream did not open")
    yield viewers
