"""The site: the dashboard and the API of one application, as an ASGI application."""

from __future__ import annotations

import getpass
import logging
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.admin.actions.actions import Actions
from holdfast.admin.doctor import checks
from holdfast.admin.views.masking import Masks
from holdfast.domain.access.masking import mask_store_url
from holdfast.domain.access.roles import Via
from holdfast.domain.fleet.health import HealthCheck
from holdfast.settings import log_folder
from holdfast.store.engine.url import open_store
from holdfast.web import health
from holdfast.web.api import router
from holdfast.web.api.envelope import failed
from holdfast.web.errors import title_of, told
from holdfast.web.pages import routes
from holdfast.web.pages.request import SignedInUser
from holdfast.web.pages.templates import rendered
from holdfast.web.security import login
from holdfast.web.security.authentication import Authenticator
from holdfast.web.security.entry import AuthenticationMiddleware, caller_of, route_of
from holdfast.web.security.request_checks import RequestChecks
from holdfast.web.settings import WebOptions
from holdfast.web.stream import LiveUpdates

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.store import Store
    from holdfast.store.fleet.dashboard import ChangeCounters

log = logging.getLogger("holdfast.web")

#: The doctor is asked again after so long.
EXAMINED_FOR = timedelta(seconds=30)
#: Nobody signs in there: whoever has no token is told so.
FOR_PROGRAMS = ("/metrics", "/live")


class Site:
    """What people and programs reach over HTTP. It reads with little patience, and acts with the store's own."""

    def __init__(self, app: Holdfast, options: WebOptions) -> None:
        self.app = app
        self.options = options
        self.authenticator = Authenticator(options, local=_user())
        self.live = LiveUpdates(self.look)
        self.place = mask_store_url(app.url)
        self.logs: Path = log_folder(app.url)
        self._lock = threading.Lock()
        self._reading: Store | None = None
        self._found: tuple[list[HealthCheck], datetime] | None = None
        entry = AuthenticationMiddleware(Router(self._routes()), self.authenticator, lambda: self.store)
        self._watchdog = RequestChecks(entry, options, tell=self._tell)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        # The router says by an exception what it does not know when it believes to be part of an application.
        await self._watchdog({**scope, "app": self}, receive, send)

    @property
    def store(self) -> Store:
        """The store, for looks: none of them may take long. It is opened when somebody asks."""
        with self._lock:
            if self._reading is None:
                assert self.app.store  # with its kinds published
                self._reading = open_store(self.app.url, create=False, patience=self.options.patience)
            return self._reading

    def look(self) -> ChangeCounters:
        """What says whether something has changed, or whether the store answers at all."""
        return self.store.dashboard.change_counters()

    @cached_property
    def masks(self) -> Masks:
        return Masks(self.store)

    def actions(self, request: Request) -> Actions:
        """Where whoever asks acts."""
        via = Via.API if route_of(request.scope).startswith("/api/") else Via.WEB
        return Actions(self.app.store, actor=caller_of(request.scope).name, via=via, providers=self.app.providers)

    def who(self, request: Request) -> SignedInUser:
        """Who looks at a page."""
        caller = caller_of(request.scope)
        token = self.authenticator.form_token(self.store, caller)
        return SignedInUser(caller.name, caller.role, token, can_leave=bool(caller.nonce))

    def may_stay(self, request: Request) -> bool:
        """Whether who opened a stream may still listen: a token may have been revoked meanwhile."""
        return self.authenticator.still(self.store, caller_of(request.scope))

    def examined(self) -> tuple[list[HealthCheck], datetime]:
        """What the doctor found, and when: not for each who asks."""
        with self._lock:
            found = self._found
        if found is None or datetime.now(UTC) - found[1] > EXAMINED_FOR:
            found = (list(checks.examine(lambda: self.store)), datetime.now(UTC))
            with self._lock:
                self._found = found
        return found

    def close(self) -> None:
        """End all streams and close what was opened for looks; idempotent."""
        self.live.close()
        with self._lock:
            if self._reading is not None:
                self._reading.close()
                self._reading = None

    def _routes(self) -> Sequence[BaseRoute]:
        static = Mount("/static", StaticFiles(directory=Path(__file__).parent / "static"))
        return [
            *health.routes(self),
            *login.routes(self),
            *router.routes(self),
            static,
            *routes.routes(self, self.live),
        ]

    def _tell(self, scope: Scope, error: Exception) -> ASGIApp:
        """The answer to what went wrong: an envelope for programs, words for people."""
        status, failure, headers = told(error)
        route = route_of(scope)
        if route.startswith("/api/"):
            return JSONResponse(failed(failure), status, headers)
        if status == 401 and scope["method"] == "GET" and route not in FOR_PROGRAMS:
            return _to_login(scope, route)
        values = {"base": str(scope.get("root_path", "")), "title": title_of(status)}
        page = rendered(
            "bare.html", {**values, **{word: getattr(failure, word) for word in ("message", "hint", "code")}}
        )
        return HTMLResponse(page, status, headers)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _to_login(scope: Scope, route: str) -> Response:
    root = str(scope.get("root_path", ""))
    return RedirectResponse(login.address(root, route, scope["query_string"]), 303)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"
