"""The site: the dashboard and the API of one application, as an ASGI application."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import BaseRoute, Router
from starlette.types import Receive, Scope, Send

from holdfast.admin.doctor import checks
from holdfast.admin.views.overview import change_counters
from holdfast.domain.access.masking import mask_store_url
from holdfast.domain.health_check import HealthCheck
from holdfast.errors import StoreUnavailable
from holdfast.settings import log_folder
from holdfast.store import open_store
from holdfast.web import health, metrics
from holdfast.web.api import router
from holdfast.web.live import LiveUpdates
from holdfast.web.options import WebOptions
from holdfast.web.page_cache import GZIP_LEVEL, PageCache
from holdfast.web.pages import routes
from holdfast.web.security import sessions
from holdfast.web.security.authentication import AuthenticationMiddleware, Authenticator, Caller
from holdfast.web.security.request_checks import RequestChecks
from holdfast.web.security.request_slots import MAX_SEARCHES, RequestLimit

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.store import Store

#: The doctor examines the store at most once in this time.
DOCTOR_INTERVAL = timedelta(seconds=30)


class Site:
    """The pages and the API over HTTP. Reads use a short timeout, actions the application's own store."""

    def __init__(self, app: Holdfast, options: WebOptions) -> None:
        self.app = app
        self.options = options
        self.authenticator = Authenticator(options)
        self.live = LiveUpdates(self.read_changes, lambda callers: self.authenticator.confirm(self.store, callers))
        self.page_cache = PageCache(lambda: self.live.sent_at)
        self.searches = RequestLimit(MAX_SEARCHES, "searches in logs")
        #: The URL of the store without its password.
        self.location = mask_store_url(app.url)
        self.logs: Path = log_folder(app.url)
        self._lock = threading.Lock()
        self._read_store: Store | None = None
        self._diagnosis: tuple[list[HealthCheck], datetime] | None = None
        # Cookies are SameSite=strict: no other site can measure the size of a viewer's pages.
        site = GZipMiddleware(Router(self._routes()), compresslevel=GZIP_LEVEL)
        authenticated = AuthenticationMiddleware(site, self.authenticator, lambda: self.store)
        self._checked = RequestChecks(authenticated, options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        # Only inside an application does the router raise for unknown paths, instead of answering by itself.
        await self._checked({**scope, "app": self}, receive, send)

    @property
    def store(self) -> Store:
        """The store for reads, with a short timeout. It is opened on first use."""
        # Another request opens it: while the database does not answer, they fail together, not one after the other.
        if not self._lock.acquire(timeout=max(1.0, self.options.patience.total_seconds())):
            raise StoreUnavailable("the database does not answer")
        try:
            if self._read_store is None:
                assert self.app.store  # opening it publishes the kinds
                self._read_store = open_store(self.app.url, create=False, patience=self.options.patience)
            return self._read_store
        finally:
            self._lock.release()

    def read_changes(self) -> Struct:
        """Counters that differ after a change; also a test whether the store answers."""
        return change_counters(self.store)

    def form_token(self, caller: Caller) -> str:
        return self.authenticator.form_token(self.store, caller)

    def diagnose(self) -> tuple[list[HealthCheck], datetime]:
        """The findings of the doctor, and their time. They are kept for :data:`DOCTOR_INTERVAL`."""
        with self._lock:
            diagnosis = self._diagnosis
        if diagnosis is None or datetime.now(UTC) - diagnosis[1] > DOCTOR_INTERVAL:
            diagnosis = (list(checks.examine(lambda: self.store)), datetime.now(UTC))
            with self._lock:
                self._diagnosis = diagnosis
        return diagnosis

    def close(self) -> None:
        """End all streams and close the store for reads; idempotent."""
        self.live.close()
        self.page_cache.close()
        with self._lock:
            if self._read_store is not None:
                self._read_store.close()
                self._read_store = None

    def _routes(self) -> Sequence[BaseRoute]:
        modules = (health, metrics, sessions, router, routes)
        return [route for module in modules for route in module.routes(self)]

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return
