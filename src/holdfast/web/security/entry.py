"""The entry: finds out who asks, and that a form was sent from a page of ours, before anybody is let through."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors.http import Forbidden
from holdfast.store import Store
from holdfast.web.security.authentication import COOKIE, Authenticator, Caller

#: Fields that a form may have; what a form is sent as.
FIELDS = 2000
FORM = "application/x-www-form-urlencoded"
#: What needs nobody: health for those who watch, and the way in. What is below the last is the same for everybody.
OPEN = ("/healthz", "/readyz", "/login", "/metrics")
STATIC = "/static/"


def route_of(scope: Scope) -> str:
    """The path below where the site is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] or "/" if root and path.startswith(root) else path


def caller_of(scope: Scope) -> Caller:
    """Who asks, once the entry has found out."""
    caller: Caller = scope["state"]["caller"]
    return caller


class AuthenticationMiddleware:
    """Lets in who may come in; *store* is asked for when somebody comes."""

    def __init__(self, inner: ASGIApp, authenticator: Authenticator, store: Callable[[], Store]) -> None:
        self._inner = inner
        self._doorkeeper = authenticator
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = route_of(scope)
        if route in OPEN or route.startswith(STATIC):
            await self._inner(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        client = connection.client
        store = await run_in_threadpool(self._store)
        caller = await run_in_threadpool(
            self._doorkeeper.caller,
            store,
            connection.headers,
            connection.cookies.get(COOKIE),
            None if client is None else client.host,
        )
        scope["state"] = {**scope.get("state", {}), "caller": caller}
        if scope["method"] == "POST" and not route.startswith("/api/"):
            body = await _body(receive)
            token = _form_token(connection.headers.get("content-type", ""), body)
            if not await run_in_threadpool(self._doorkeeper.is_form_token, store, caller, token):
                raise Forbidden("this form was not sent from a page of ours", hint="Load the page again.")
            receive = _again(body)
        await self._inner(scope, receive, send)


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return b"".join(parts)


def _again(body: bytes) -> Receive:
    """The body once more, for who comes next."""
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _form_token(kind: str, body: bytes) -> str:
    if kind.partition(";")[0].strip().lower() != FORM:
        raise Forbidden("a change is sent as a form", hint="Programs use the API: /api/v1.")
    try:
        pairs = parse_qsl(body.decode("ascii"), max_num_fields=FIELDS)
    except ValueError:
        raise Forbidden("the form cannot be read", hint="Load the page again.") from None
    return next((value for name, value in pairs if name == "form_token"), "")
