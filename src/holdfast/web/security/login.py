"""The way in for people: a token, once, and a session from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.admin.actions.actions import Actions
from holdfast.domain.access.roles import Via
from holdfast.errors.http import HttpError
from holdfast.web.errors import error_answer
from holdfast.web.pages.templates import rendered
from holdfast.web.security.authentication import COOKIE
from holdfast.web.security.entry import caller_of

if TYPE_CHECKING:
    from holdfast.web.app import Site


def address(root: str, route: str, query: bytes) -> str:
    """Where to sign in, and where to go then."""
    requested = route + (f"?{query.decode('latin-1')}" if query else "")
    return f"{root}/login?{urlencode({'next': requested}, quote_via=quote)}"


def routes(site: Site) -> list[BaseRoute]:
    async def show(request: Request) -> Response:
        return _page(request, request.query_params.get("next", ""))

    async def enter(request: Request) -> Response:
        try:
            given = dict(parse_qsl((await request.body()).decode("latin-1"), max_num_fields=20))
        except ValueError:
            raise HttpError("the form cannot be read", hint="Load the page again.") from None
        return await run_in_threadpool(_enter, site, request, given)

    async def leave(request: Request) -> Response:
        caller = caller_of(request.scope)
        if caller.nonce:
            site.authenticator.end(caller)
        answer = RedirectResponse(f"{_root(request)}/login", 303)
        answer.delete_cookie(COOKIE, path=_root(request) or "/")
        return answer

    return [
        Route("/login", show, methods=["GET"]),
        Route("/login", enter, methods=["POST"]),
        Route("/logout", leave, methods=["POST"]),
    ]


def _enter(site: Site, request: Request, given: dict[str, str]) -> Response:
    client = request.client
    try:
        caller = site.authenticator.by_token(
            site.store, given.get("token", ""), None if client is None else client.host
        )
    except HttpError as problem:
        status, failure, headers = error_answer(problem)
        return _page(request, given.get("next", ""), failure.message, status, headers)
    Actions(site.app.store, actor=caller.name, via=Via.WEB).did("sign in", f"token={caller.name}")
    answer = RedirectResponse(_root(request) + _inside(given.get("next", "")), 303)
    answer.set_cookie(
        COOKIE,
        site.authenticator.session(site.store, caller),
        max_age=int(site.options.session.total_seconds()),
        path=_root(request) or "/",
        httponly=True,
        secure=site.options.secure,
        samesite="strict",
    )
    return answer


def _inside(requested: str) -> str:
    """Where one wanted to go, if that is on this site: ``//elsewhere`` is not."""
    plain = requested.startswith("/") and not requested.startswith(("//", "/\\")) and requested.isprintable()
    return requested if plain and "\\" not in requested else "/"


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def _page(
    request: Request, requested: str, message: str = "", status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    values = {"base": _root(request), "title": "Sign in", "message": message, "next": _inside(requested)}
    return HTMLResponse(rendered("login.html", values), status, headers)
