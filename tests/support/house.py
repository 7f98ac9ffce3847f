"""A house for pages without a door: whoever asks has a role, and may come in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.testclient import TestClient

from holdfast import Holdfast
from holdfast.admin.actions.actions import Actions
from holdfast.admin.doctor.checks import examine
from holdfast.admin.views.masking import Masks
from holdfast.domain.access.roles import Role, Via
from holdfast.domain.fleet.health import HealthCheck
from holdfast.settings import log_folder
from holdfast.store import Store
from holdfast.web.pages import routes
from holdfast.web.pages.request import SignedInUser
from holdfast.web.stream import LiveUpdates


class OpenHouse:
    """Everybody who comes is ada."""

    def __init__(self, app: Holdfast, role: Role = Role.ADMIN) -> None:
        self.store = app.store
        self.masks = Masks(app.store)
        self.logs = log_folder(app.url)
        self.place = "a store of a test"
        self.role = role

    def who(self, _: Request) -> SignedInUser:
        return SignedInUser("ada", self.role, "form-token")

    def may_stay(self, _: Request) -> bool:
        return True

    def actions(self, _: Request) -> Actions:
        return Actions(self.store, actor="ada", via=Via.WEB)

    def examined(self) -> tuple[list[HealthCheck], datetime]:
        return list(examine(lambda: self.store)), datetime.now(UTC)


def client_of(house: OpenHouse) -> TestClient:
    """A browser without JavaScript before the pages of this house; it follows nothing by itself."""
    site = Starlette(routes=routes.routes(house, LiveUpdates(house.store.dashboard.change_counters)))
    return TestClient(site, base_url="http://127.0.0.1", follow_redirects=False)


@contextmanager
def counting(store: Store) -> Iterator[list[str]]:
    """The names of the statements that a store is asked, as long as one looks."""
    backend: Any = store.backend
    asked: list[str] = []
    inside = threading.local()  # one backend looks by running
    look, run, read, write = backend.look, backend.run, backend.read, backend.write

    def one(call: Any) -> Any:
        def counted(ask: Any, **options: Any) -> Any:
            if getattr(inside, "already", False):
                return call(ask, **options)
            asked.append(ask.name)
            inside.already = True
            try:
                return call(ask, **options)
            finally:
                inside.already = False

        return counted

    def many(call: Any) -> Any:
        def counted(flow: Any, *args: Any, **options: Any) -> Any:
            return call(lambda *args, **options: _told(flow(*args, **options), asked), *args, **options)

        return counted

    backend.look, backend.run, backend.read, backend.write = one(look), one(run), many(read), many(write)
    try:
        yield asked
    finally:
        del backend.look, backend.run, backend.read, backend.write


def _told(flow: Any, asked: list[str]) -> Any:
    """The same flow, with the names of its statements written down."""
    rows: Any = None
    while True:
        try:
            step = flow.send(rows)
        except StopIteration as stop:
            return stop.value
        asked.append(getattr(step, "name", "fill"))
        rows = yield step
