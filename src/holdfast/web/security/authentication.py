"""Authentication: the caller of a request, by token, session or trusted proxy."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from contextlib import suppress

from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.domain.access.roles import Role
from holdfast.domain.text import checked_actor
from holdfast.errors import HoldfastError
from holdfast.store import Store
from holdfast.store.access.records import AccessState
from holdfast.web.errors import Unauthenticated
from holdfast.web.security import csrf
from holdfast.web.security.sessions import CHALLENGE, COOKIE, Sessions
from holdfast.web.security.tokens import TokenVerifier
from holdfast.web.settings import WebOptions

#: Headers of proxies. A request that carries one did not come from this machine.
FORWARDED_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
#: Paths without authentication, and the folder of files that are the same for everybody.
PUBLIC_PATHS = ("/healthz", "/readyz", "/login", "/metrics")
STATIC_PATH = "/static/"


class Caller(Struct, frozen=True):
    """The person or program that sends a request. *prefix* is that of its token, *nonce* that of its session."""

    name: str
    role: Role
    prefix: str | None = None
    nonce: str = ""


class Authenticator:
    """Identifies callers. Each request reads the credential from the store, so that a revoked token fails at once."""

    def __init__(self, options: WebOptions, *, local_user: str) -> None:
        self._options = options
        self._local_user = local_user
        self._tokens = TokenVerifier()
        self.sessions = Sessions(options.session)

    def identify(self, store: Store, connection: HTTPConnection) -> Caller:
        """The caller of a request.

        Raises:
            Unauthenticated: The caller is unknown.
            SlowDown: Too many wrong tokens came from this address.
        """
        headers, address = connection.headers, address_of(connection)
        if (person := self._by_proxy(headers, address)) is not None:
            return person
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme:
            if scheme.lower() != "bearer":
                raise Unauthenticated("this way to say who you are is not known here", headers=CHALLENGE)
            return self.by_token(store, token.strip(), address)
        cookie = connection.cookies.get(COOKIE)
        if not cookie:
            return self._anonymous(store, headers)
        try:
            return self.by_cookie(store, cookie)
        except Unauthenticated as refusal:
            # Another server on this machine may have set the cookie: it must not lock out anonymous callers.
            with suppress(Unauthenticated):
                return self._anonymous(store, headers)
            raise refusal from None

    def by_token(self, store: Store, token: str, address: str | None) -> Caller:
        return self._caller(store, self._tokens.verify(store, token, address))

    def by_cookie(self, store: Store, cookie: str) -> Caller:
        return self._caller(store, *self.sessions.verify(store, cookie))

    def _caller(self, store: Store, credential: AccessState, nonce: str = "") -> Caller:
        if credential.revoked_at is not None or credential.name is None or credential.role is None:
            raise Unauthenticated("this token was revoked", headers=CHALLENGE)
        self._tokens.note_use(store, credential.prefix or "")
        return Caller(credential.name, credential.role, credential.prefix, nonce)

    def form_token(self, store: Store, caller: Caller) -> str:
        return csrf.form_token(self.sessions.secret(store), caller)

    def is_current(self, store: Store, caller: Caller) -> bool:
        """Whether an identified caller still has access. Streams check this again and again."""
        if caller.nonce and self.sessions.is_closed(caller.nonce):
            return False
        if caller.prefix is not None:
            credential = store.credentials.door(caller.prefix)
            return credential.prefix is not None and credential.revoked_at is None
        return self._options.proxy_header is not None or not store.credentials.door(None).locked

    def _by_proxy(self, headers: Mapping[str, str], address: str | None) -> Caller | None:
        """The person that a trusted proxy names. The header is ignored if it comes from any other address."""
        name = self._options.proxy_header and headers.get(self._options.proxy_header.lower())
        if not name or address is None or not self._is_trusted(address):
            return None
        try:
            return Caller(checked_actor(name.strip()), self._options.proxy_role)
        except HoldfastError as error:
            raise Unauthenticated(f"the proxy names nobody: {error.message}") from None

    def _is_trusted(self, address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(peer in network for network in self._options.trusted)

    def _anonymous(self, store: Store, headers: Mapping[str, str]) -> Caller:
        """A caller without a token: allowed by option, on this machine, and until the first token is created."""
        role = self._options.anyone
        forwarded = any(name in headers for name in FORWARDED_HEADERS)
        if role is None or forwarded or store.credentials.door(None).locked:
            raise Unauthenticated("a token is needed here", headers=CHALLENGE)
        return Caller(self._local_user, role)


class AuthenticationMiddleware:
    """Identifies the caller of every request, and checks the CSRF token of every form."""

    def __init__(self, inner: ASGIApp, authenticator: Authenticator, store: Callable[[], Store]) -> None:
        self._inner = inner
        self._authenticator = authenticator
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_of(scope)
        if path in PUBLIC_PATHS or path.startswith(STATIC_PATH):
            await self._inner(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        store = await run_in_threadpool(self._store)
        caller = await run_in_threadpool(self._authenticator.identify, store, connection)
        scope["state"] = {**scope.get("state", {}), "caller": caller}
        if scope["method"] == "POST" and not path.startswith("/api/"):
            body = await csrf.read_body(receive)
            expected = await run_in_threadpool(self._authenticator.form_token, store, caller)
            csrf.check_form_token(expected, connection.headers.get("content-type", ""), body)
            receive = csrf.replay_body(body)
        await self._inner(scope, receive, send)


def path_of(scope: Scope) -> str:
    """The path below the one at which the site is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] or "/" if root and path.startswith(root) else path


def caller_of(scope: Scope) -> Caller:
    """The caller that :class:`AuthenticationMiddleware` has identified."""
    caller: Caller = scope["state"]["caller"]
    return caller


def address_of(connection: HTTPConnection) -> str | None:
    return None if connection.client is None else connection.client.host
