"""The pages in a real browser: a real server, and Chromium."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from unittest import mock

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

import holdfast
from holdfast.domain.access.roles import Role
from holdfast.web import asgi
from holdfast.web.security.sessions import COOKIE
from tests.support.scene import Scene

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Stage:
    """A complete store at ``url``, and one with hostile texts at ``url``/hostile."""

    def __init__(self, folder: Path, hostile: str) -> None:
        self.app = holdfast.Holdfast(f"sqlite:///{folder / 'jobs.db'}")
        self.other = holdfast.Holdfast(f"sqlite:///{folder / 'hostile.db'}")
        self.steps, self.blocked = threading.Semaphore(0), threading.Event()
        self.crawl = self._units()
        # As if a person had started its batch from a script: the pictures of the guide show both.
        with mock.patch.object(sys, "orig_argv", ["python", "resync.py"]), mock.patch.dict(os.environ, LOGNAME="ada"):
            self.scene = Scene(self.app).build()
        self.hostile = Scene(self.other, hostile).build()
        self.url = ""
        #: Of a person who is signed in at both.
        self.cookies: list[dict[str, str]] = []

    def _units(self) -> holdfast.client.batches.function.UnitFunction:
        steps, blocked = self.steps, self.blocked

        @self.app.unit(queue="crawl")
        def crawl(key: int) -> None:
            """A unit that finishes for each step of the test."""
            if not steps.acquire(blocking=False):
                blocked.set()
                assert steps.acquire(timeout=300)

        return crawl

    @staticmethod
    def _session(app: holdfast.Holdfast) -> str:
        return app.store.sessions.open("ada", Role.ADMIN, lifetime=timedelta(hours=1))

    @contextmanager
    def served(self) -> Iterator[Stage]:
        sites = [asgi(app) for app in (self.app, self.other)]
        routes = [Mount("/hostile", sites[1]), Mount("/", sites[0])]
        config = uvicorn.Config(
            Starlette(routes=routes), log_level="error", lifespan="off", timeout_graceful_shutdown=1, access_log=False
        )
        server = uvicorn.Server(config)
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.cookies = [
            {"name": f"{COOKIE}-{port}{suffix}", "value": self._session(app), "url": self.url}
            for app, suffix in ((self.app, ""), (self.other, "-hostile"))
        ]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield self
        finally:
            server.should_exit = True
            for site in sites:
                site.live.close()
            thread.join(60)
            for site in sites:
                site.close()
            self.app.close()
            self.other.close()
            listening.close()
            assert not thread.is_alive()
