"""Login and logout: a person shows a token once, and has a session from then on."""

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
from holdfast.web.pages.templates import render
from holdfast.web.security.authentication import address_of, caller_of
from holdfast.web.security.sessions import COOKIE

if TYPE_CHECKING:
    from holdfast.web.app import Site


def login_url(root: str, path: str, query: bytes) -> str:
    """The address of the login page, which leads back to *path*."""
    target = path + (f"?{query.decode('latin-1')}" if query else "")
    return f"{root}/login?{urlencode({'next': target}, quote_via=quote)}"


def routes(site: Site) -> list[BaseRoute]:
    async def show(request: Request) -> Response:
        return _page(request, request.query_params.get("next", ""))

    async def login(request: Request) -> Response:
        try:
            form = dict(parse_qsl((await request.body()).decode("latin-1"), max_num_fields=20))
        except ValueError:
            raise HttpError("the form cannot be read", hint="Load the page again.") from None
        return await run_in_threadpool(_login, site, request, form)

    async def logout(request: Request) -> Response:
        caller = caller_of(request.scope)
        if caller.nonce:
            site.authenticator.sessions.close(caller.nonce)
        answer = RedirectResponse(f"{_root(request)}/login", 303)
        answer.delete_cookie(COOKIE, path=_root(request) or "/")
        return answer

    return [
        Route("/login", show, methods=["GET"]),
        Route("/login", login, methods=["POST"]),
        Route("/logout", logout, methods=["POST"]),
    ]


def _login(site: Site, request: Request, form: dict[str, str]) -> Response:
    try:
        caller = site.authenticator.by_token(site.store, form.get("token", ""), address_of(request))
    except HttpError as error:
        status, failure, headers = error_answer(error)
        return _page(request, form.get("next", ""), failure.message, status, headers)
    Actions(site.app.store, actor=caller.name, via=Via.WEB).record("sign in", f"token={caller.name}")
    answer = RedirectResponse(_root(request) + _local_path(form.get("next", "")), 303)
    answer.set_cookie(
        COOKIE,
        site.authenticator.sessions.create(site.store, caller.prefix),
        max_age=int(site.options.session.total_seconds()),
        path=_root(request) or "/",
        httponly=True,
        secure=site.options.secure,
        samesite="strict",
    )
    return answer


def _local_path(target: str) -> str:
    """The target if it is on this site, else ``/``: ``//elsewhere`` is another site."""
    plain = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if plain and "\\" not in target else "/"


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def _page(
    request: Request, target: str, message: str = "", status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    values = {"base": _root(request), "title": "Sign in", "message": message, "next": _local_path(target)}
    return HTMLResponse(render("login.html", values), status, headers)
