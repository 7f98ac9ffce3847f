"""A site without authentication for tests of pages: every caller is ada and has one role."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.testclient import TestClient

from holdfast import Holdfast
from holdfast.admin.doctor.checks import examine
from holdfast.domain.access.roles import Role
from holdfast.domain.health_check import HealthCheck
from holdfast.settings import log_folder
from holdfast.store import Store
from holdfast.web.live import LiveUpdates
from holdfast.web.page_cache import PageCache
from holdfast.web.pages import routes
from holdfast.web.security.authentication import Caller
from holdfast.web.security.request_slots import RequestLimit


class OpenSite:
    """The parts of a site that pages use."""

    def __init__(self, app: Holdfast, role: Role = Role.ADMIN) -> None:
        self.app = app
        self.store = app.store
        self.logs = log_folder(app.url)
        self.location = "a store of a test"
        self.live = LiveUpdates(app.store.dashboard.change_counters, set)
        self.page_cache = PageCache(lambda: self.live.sent_at)
        self.searches = RequestLimit(1, "searches")
        self.role = role

    def form_token(self, _: Caller) -> str:
        return "form-token"

    def diagnose(self) -> tuple[list[HealthCheck], datetime]:
        return list(examine(lambda: self.store)), datetime.now(UTC)


def client_of(site: OpenSite) -> TestClient:
    """A browser without JavaScript, which does not follow redirects."""
    pages = Starlette(routes=routes.routes(site))

    async def authenticated(scope: Any, receive: Any, send: Any) -> None:
        await pages({**scope, "state": {**scope.get("state", {}), "caller": Caller("ada", site.role)}}, receive, send)

    return TestClient(authenticated, base_url="http://127.0.0.1", follow_redirects=False)


@contextmanager
def counting(store: Store) -> Iterator[list[str]]:
    """Records the names of the statements that the store executes."""
    backend: Any = store.backend
    names: list[str] = []
    inside = threading.local()  # one backend implements fetch with run
    fetch, run, read, write = backend.fetch, backend.run, backend.read, backend.write

    def one(call: Any) -> Any:
        def counted(statement: Any, **options: Any) -> Any:
            if getattr(inside, "already", False):
                return call(statement, **options)
            names.append(statement.name)
            inside.already = True
            try:
                return call(statement, **options)
            finally:
                inside.already = False

        return counted

    def many(call: Any) -> Any:
        def counted(operation: Any, *args: Any, **options: Any) -> Any:
            return call(lambda *args, **options: _recorded(operation(*args, **options), names), *args, **options)

        return counted

    backend.fetch, backend.run, backend.read, backend.write = one(fetch), one(run), many(read), many(write)
    try:
        yield names
    finally:
        del backend.fetch, backend.run, backend.read, backend.write


def _recorded(operation: Any, names: list[str]) -> Any:
    """The same operation, with the names of its statements recorded."""
    rows: Any = None
    while True:
        try:
            step = operation.send(rows)
        except StopIteration as stop:
            return stop.value
        names.append(getattr(step, "name", "fill"))
        rows = yield step
