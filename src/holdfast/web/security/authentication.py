"""Authentication: the caller of a request, by token, session or trusted proxy."""

from __future__ import annotations

import hashlib
import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.domain.access.roles import Role
from holdfast.domain.access.tokens import is_secret_of, split_token
from holdfast.domain.names import checked_actor
from holdfast.errors import HoldfastError
from holdfast.errors.http import SlowDown, Unauthenticated
from holdfast.store import Store
from holdfast.store.access.credentials import AccessState
from holdfast.web.options import WebOptions
from holdfast.web.request import address_of, path_of
from holdfast.web.security import csrf
from holdfast.web.security.sessions import CHALLENGE, COOKIE, Sessions

#: Failed logins from one address before it must wait.
FREE_FAILURES = 5
FIRST_WAIT_S, MAX_WAIT_S = 1.0, 60.0
#: Addresses and tokens that are kept in memory.
CACHE_SIZE = 10_000
#: The last use of a token is written to the store at most once in this time.
USE_INTERVAL_S = 60.0
#: Headers of proxies. A request that carries one did not come from this machine.
FORWARDED_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
#: Paths without authentication, and the folder of files that are the same for all callers.
PUBLIC_PATHS = ("/healthz", "/readyz", "/login", "/metrics")
STATIC_PATH = "/static/"


class Caller(Struct, frozen=True):
    """The person or program that sends a request. *prefix* is that of its token, *nonce* that of its session."""

    name: str
    role: Role
    prefix: str | None = None
    nonce: str = ""


class FailedLogins:
    """Delays an address that sends wrong tokens, longer with each failure. Other addresses do not wait."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, address: str) -> None:
        """Raise SlowDown, with the time to wait, after too many failures."""
        with self._lock:
            _, until = self._failures.get(address, (0, 0.0))
        left = until - time.monotonic()
        if left > 0:
            headers, hint = {"Retry-After": str(int(left) + 1)}, "Wait, then try with the right one."
            raise SlowDown("too many wrong tokens from this address", hint=hint, headers=headers)

    def add(self, address: str) -> None:
        with self._lock:
            count = self._failures.pop(address, (0, 0.0))[0] + 1
            wait = 0.0 if count < FREE_FAILURES else min(FIRST_WAIT_S * 2 ** (count - FREE_FAILURES), MAX_WAIT_S)
            self._failures[address] = (count, time.monotonic() + wait)
            _trim(self._failures)

    def clear(self, address: str) -> None:
        with self._lock:
            self._failures.pop(address, None)


class TokenVerifier:
    """Verifies tokens against the store.

    Digests of verified tokens are cached: one scrypt per request would let clients exhaust the server. The store is
    still read each time, so that a revoked token fails at once.
    """

    def __init__(self) -> None:
        self._failed_logins = FailedLogins()
        self._verified: OrderedDict[str, str] = OrderedDict()
        self._used_at: OrderedDict[str, float] = OrderedDict()
        #: One attempt at a time per address: parallel attempts are counted before the next one is verified.
        self._address_locks = [threading.Lock() for _ in range(64)]
        self._lock = threading.Lock()

    def verify(self, store: Store, token: str, address: str | None) -> AccessState:
        """The credential of a token; SlowDown after too many failures from the address."""
        place = address or "?"
        fields = split_token(token)
        if fields is None:
            self._failed_logins.check(place)
            self._failed_logins.add(place)
            raise Unauthenticated("this is no token of this store", headers=CHALLENGE)
        prefix, secret = fields
        credential = store.credentials.access_state(prefix)
        with self._address_locks[hash(place) % len(self._address_locks)]:
            digest = hashlib.sha256(token.encode()).hexdigest()
            with self._lock:
                cached = credential.hash is not None and self._verified.get(digest) == credential.hash
            if not cached:
                self._verify_secret(credential, secret, place)
                with self._lock:
                    self._verified[digest] = credential.hash or ""
                    _trim(self._verified)
        self._failed_logins.clear(place)
        return credential

    def _verify_secret(self, credential: AccessState, secret: str, place: str) -> None:
        """Unknown tokens take as long as wrong ones."""
        self._failed_logins.check(place)
        salt, expected = credential.salt or "00" * 16, credential.hash or ""
        if not is_secret_of(secret, salt=salt, expected=expected) or credential.hash is None:
            self._failed_logins.add(place)
            raise Unauthenticated("this is no token of this store", headers=CHALLENGE)

    def note_use(self, store: Store, prefix: str) -> None:
        """Write the time of use to the store, in a thread: a reader must not wait for writers."""
        with self._lock:
            now, before = time.monotonic(), self._used_at.pop(prefix, float("-inf"))
            due = now - before >= USE_INTERVAL_S
            self._used_at[prefix] = now if due else before
            _trim(self._used_at)
        if due:
            thread = threading.Thread(target=self._write_use, args=(store, prefix), name="token-use", daemon=True)
            with suppress(RuntimeError):  # out of threads: the next use is written instead
                thread.start()

    def _write_use(self, store: Store, prefix: str) -> None:
        try:
            store.credentials.record_use(prefix)
        except HoldfastError:
            with self._lock:
                self._used_at.pop(prefix, None)


def _trim(cache: OrderedDict[str, Any]) -> None:
    while len(cache) > CACHE_SIZE:
        cache.popitem(last=False)


class Authenticator:
    """Identifies callers. Each request reads the credential from the store, so that a revoked token fails at once."""

    def __init__(self, options: WebOptions, *, local_user: str) -> None:
        self._options = options
        self._local_user = local_user
        self._tokens = TokenVerifier()
        self.sessions = Sessions(options.session)

    def identify(self, store: Store, connection: HTTPConnection) -> Caller:
        """The caller of a request; Unauthenticated, or SlowDown after too many wrong tokens from its address."""
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
        """Whether an identified caller still has access. Streams check this before each event."""
        if caller.nonce and self.sessions.is_closed(caller.nonce):
            return False
        if caller.prefix is not None:
            credential = store.credentials.access_state(caller.prefix)
            return credential.prefix is not None and credential.revoked_at is None
        return self._options.proxy_header is not None or not store.credentials.access_state(None).locked

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
        if role is None or forwarded or store.credentials.access_state(None).locked:
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
