"""Signing in and out: with a token, or with a link that works once. A cookie stands for the session in the store."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.admin.actions.actions import Actions
from holdfast.domain.access.audit import Via
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.errors.http import Forbidden, HttpError
from holdfast.web.errors import error_answer
from holdfast.web.request import address_of, caller_of, path_of, render
from holdfast.web.security.authorization import require_scope

if TYPE_CHECKING:
    from holdfast.web.app import Site

COOKIE = "holdfast_session"
#: The path of sign-in links.
LINK_PATH = "/sign-in"
#: Headers of proxies. A request that carries one did not come from this machine.
FORWARDED_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


def cookie_name(connection: HTTPConnection, *, secure: bool) -> str:
    """The name of the session's cookie.

    It holds the port and the mount path: browsers share cookies between all ports of a host, and would mix up two
    dashboards. With the prefix ``__Host-`` a browser takes the cookie by HTTPS and from this host alone.
    """
    _, _, port = connection.headers.get("host", "").rpartition(":")
    place = f"{port if port.isascii() and port.isdigit() else ''}{connection.scope.get('root_path', '')}"
    suffix = re.sub(r"[^A-Za-z0-9]+", "-", place).strip("-")
    return ("__Host-" if secure else "") + COOKIE + (f"-{suffix}" if suffix else "")


def routes(site: Site) -> list[BaseRoute]:
    async def show_login(request: Request) -> Response:
        return _page(request, "login.html", next=_local_path(request.query_params.get("next", "")))

    async def show_link(request: Request) -> Response:
        return _page(request, "sign_in.html", link=request.query_params.get("link", ""))

    async def login(request: Request) -> Response:
        return await run_in_threadpool(_login, site, request, await _form(request))

    async def use_link(request: Request) -> Response:
        return await run_in_threadpool(_use_link, site, request, await _form(request))

    async def logout(request: Request) -> Response:
        caller = caller_of(request.scope)
        if caller.session:
            await run_in_threadpool(site.app.store.sessions.close, caller.session)
            site.authenticator.sign_out(caller)
        answer = RedirectResponse(f"{_root(request)}/login", 303)
        secure = site.options.secure
        answer.delete_cookie(cookie_name(request, secure=secure), path=_cookie_path(request, secure), secure=secure)
        return answer

    post = ["POST"]
    return [
        Route("/login", show_login),
        Route("/login", login, methods=post),
        Route(LINK_PATH, show_link),
        Route(LINK_PATH, use_link, methods=post),
        Route("/logout", logout, methods=post),
    ]


def _login(site: Site, request: Request, form: dict[str, str]) -> Response:
    target = _local_path(form.get("next", ""))
    try:
        caller = site.authenticator.by_token(site.store, form.get("token", "").strip())
        require_scope(caller, path_of(request.scope))  # a session has no scope
    except HttpError as error:
        return _refusal(request, "login.html", error, next=target)
    Actions(site.app.store, actor=caller.name, via=Via.WEB).record("sign in", f"token={caller.name}")
    lifetime = site.options.session
    cookie = site.app.store.sessions.open(caller.name, caller.role, lifetime=lifetime, prefix=caller.prefix)
    return _signed_in(site, request, cookie, target)


def _use_link(site: Site, request: Request, form: dict[str, str]) -> Response:
    link, name = form.get("link", ""), form.get("name", "").strip()
    try:
        _check_loopback(request)
        with site.authenticator.failed_tries.counted(NotFound):
            cookie, role = site.app.store.sessions.use_link(link, name, lifetime=site.options.session)
    except (HttpError, NotFound, Conflict, InvalidInput) as error:
        return _refusal(request, "sign_in.html", error, link=link)
    Actions(site.app.store, actor=name, via=Via.WEB).record("sign in", f"link={role}")
    return _signed_in(site, request, cookie, "/")


def _check_loopback(request: Request) -> None:
    """Links are for the machine of the server: elsewhere they would cross a network in clear text."""
    try:
        local = ipaddress.ip_address(address_of(request) or "").is_loopback
    except ValueError:
        local = False
    if not local or any(name in request.headers for name in FORWARDED_HEADERS):
        hint = "Sign in with a token: holdfast token add NAME --role admin."
        raise Forbidden("a sign-in link works only on the server's own machine", hint=hint)


def _signed_in(site: Site, request: Request, cookie: str, target: str) -> Response:
    answer = RedirectResponse(_root(request) + target, 303)
    age, secure = int(site.options.session.total_seconds()), site.options.secure
    answer.set_cookie(
        cookie_name(request, secure=secure),
        cookie,
        max_age=age,
        path=_cookie_path(request, secure),
        httponly=True,
        secure=secure,
        samesite="strict",
    )
    return answer


async def _form(request: Request) -> dict[str, str]:
    try:
        return dict(parse_qsl((await request.body()).decode("ascii"), max_num_fields=20))
    except ValueError:
        raise HttpError("the form cannot be read", hint="Load the page again.") from None


def _local_path(target: str) -> str:
    """The target if it is on this site, else ``/``: ``//elsewhere`` is another site."""
    plain = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if plain and "\\" not in target else "/"


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def _cookie_path(request: Request, secure: bool) -> str:  # noqa: FBT001
    """Browsers take a ``__Host-`` cookie only for the path ``/``."""
    return "/" if secure else _root(request) or "/"


def _refusal(request: Request, template: str, error: Exception, **values: str) -> Response:
    status, failure, headers = error_answer(error)
    answer = _page(request, template, failure.message, failure.hint, status, **values)
    answer.headers.update(headers)
    return answer


def _page(
    request: Request, template: str, message: str = "", hint: str | None = None, status: int = 200, **values: str
) -> Response:
    shown = {"base": _root(request), "title": "Sign in", "message": message, "hint": hint, **values}
    return HTMLResponse(render(template, shown), status)
