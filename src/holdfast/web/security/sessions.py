"""Sessions: login and logout, and the signed cookies that stand for a token which was shown once."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.admin.actions.actions import Actions
from holdfast.domain.access.roles import Via
from holdfast.errors.http import HttpError, Unauthenticated
from holdfast.store import Store
from holdfast.store.access.credentials import AccessState
from holdfast.web.request import address_of, caller_of, error_answer, render

if TYPE_CHECKING:
    from holdfast.web.app import Site

COOKIE = "holdfast_session"
#: Sessions whose logout this server remembers.
MAX_CLOSED_SESSIONS = 10_000
#: The header of every 401 answer.
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="holdfast"'}


class Sessions:
    """Creates, verifies and closes sessions. The signing secret is in the store, so that all its servers share it.

    A logout is known to this server alone, while it runs. Other servers of the store accept the cookie until it
    expires, or until its token is revoked.
    """

    def __init__(self, lifetime: timedelta) -> None:
        self._lifetime = lifetime
        self._secret: str | None = None
        self._closed: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def secret(self, store: Store) -> str:
        """The key that signs cookies and forms; it never changes, so one read is enough."""
        if self._secret is None:
            self._secret = store.credentials.session_secret(secrets.token_hex(32))
        return self._secret

    def create(self, store: Store, prefix: str | None) -> str:
        expires = int(time.time() + self._lifetime.total_seconds())
        body = f"{prefix}.{expires}.{secrets.token_hex(8)}"
        return f"{body}.{signature(self.secret(store), 'session', body)}"

    def verify(self, store: Store, cookie: str) -> tuple[AccessState, str]:
        """The credential and the nonce of a session."""
        body, _, signed = cookie.rpartition(".")
        fields = body.split(".")
        if len(fields) != 3 or len(cookie) > 300:
            raise Unauthenticated("this session is none of ours", headers=CHALLENGE)
        prefix, expires, nonce = fields
        credential = store.credentials.access_state(prefix)
        expected = "" if credential.secret is None else signature(credential.secret, "session", body)
        if not expected or not hmac.compare_digest(expected.encode(), signed.encode("utf-8", "replace")):
            raise Unauthenticated("this session is none of ours", headers=CHALLENGE)
        if int(expires) < time.time():
            raise Unauthenticated("this session is over", headers=CHALLENGE)
        if self.is_closed(nonce):
            raise Unauthenticated("this session was signed out of", headers=CHALLENGE)
        return credential, nonce

    def close(self, nonce: str) -> None:
        """Refuse the cookie of a session from now on, and all copies of it."""
        with self._lock:
            self._closed[nonce] = None
            while len(self._closed) > MAX_CLOSED_SESSIONS:
                self._closed.popitem(last=False)

    def is_closed(self, nonce: str) -> bool:
        with self._lock:
            return nonce in self._closed


def signature(secret: str, purpose: str, text: str) -> str:
    """An HMAC that is valid for one purpose only."""
    return hmac.new(secret.encode(), f"{purpose}:{text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


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

    post = ["POST"]
    return [Route("/login", show), Route("/login", login, methods=post), Route("/logout", logout, methods=post)]


def _login(site: Site, request: Request, form: dict[str, str]) -> Response:
    try:
        caller = site.authenticator.by_token(site.store, form.get("token", ""), address_of(request))
    except HttpError as error:
        status, failure, headers = error_answer(error)
        return _page(request, form.get("next", ""), failure.message, status, headers)
    Actions(site.app.store, actor=caller.name, via=Via.WEB).record("sign in", f"token={caller.name}")
    answer = RedirectResponse(_root(request) + _local_path(form.get("next", "")), 303)
    cookie, path = site.authenticator.sessions.create(site.store, caller.prefix), _root(request) or "/"
    age, secure = int(site.options.session.total_seconds()), site.options.secure
    answer.set_cookie(COOKIE, cookie, max_age=age, path=path, httponly=True, secure=secure, samesite="strict")
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
