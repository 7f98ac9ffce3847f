"""Authentication: the caller of a request, by token, session or trusted proxy. Every action needs one of them."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.domain.access.roles import Role
from holdfast.domain.access.tokens import hash_secret, is_secret_of, prefix_of
from holdfast.domain.names import checked_actor
from holdfast.errors import HoldfastError
from holdfast.errors.http import Forbidden, Unauthenticated, Unavailable
from holdfast.store import Store
from holdfast.web.options import WebOptions
from holdfast.web.request import LIVE_HEADER, address_of, path_of
from holdfast.web.security import csrf
from holdfast.web.security.authorization import require_scope
from holdfast.web.security.failed_tries import FailedTries
from holdfast.web.security.request_slots import (
    MAX_ADDRESS_REQUESTS,
    MAX_CALLER_REQUESTS,
    MAX_PUBLIC_REQUESTS,
    MAX_REQUESTS,
    ArrivingBodies,
    RequestLimit,
)
from holdfast.web.security.sessions import LINK_PATH, cookie_name

log = logging.getLogger("holdfast.web")

#: The last use of a token is written to the store at most once in this time.
USE_INTERVAL_S = 60.0
#: The time for which a session that the poll of open pages has confirmed may fetch them again without a statement.
CONFIRMED_S = 2.0
#: Tokens whose last use is kept in memory.
CACHE_SIZE = 10_000
#: The header of every 401 answer.
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="holdfast"'}
#: Paths that answer every caller, under every host name and without limits, so that a probe is always correct.
HEALTH_PATHS = ("/healthz", "/readyz")
#: Paths without authentication, and the folder of files that are the same for all callers.
METRICS_PATH = "/metrics"
PUBLIC_PATHS = (*HEALTH_PATHS, "/login", LINK_PATH, METRICS_PATH)
#: The variable with the token for metrics, and the length from which on no one can guess it.
METRICS_TOKEN, MIN_METRICS_TOKEN_CHARS = "HOLDFAST_METRICS_TOKEN", 16
#: Time for a request to one of them, its body and its answer included.
PUBLIC_TIMEOUT_S = 30.0
STATIC_PATH = "/static/"


class Caller(Struct, frozen=True):
    """The person or program that sends a request. *prefix* is that of its token, *session* the hash of its cookie.

    A token may be limited to an *inbox*.
    """

    name: str
    role: Role
    prefix: str | None = None
    session: str = ""
    inbox: str | None = None


class TokenUses:
    """Writes when tokens were used, in a thread: a reader must not wait for writers."""

    def __init__(self) -> None:
        self._used_at: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, store: Store, prefix: str) -> None:
        with self._lock:
            now, before = time.monotonic(), self._used_at.pop(prefix, float("-inf"))
            due = now - before >= USE_INTERVAL_S
            self._used_at[prefix] = now if due else before
            while len(self._used_at) > CACHE_SIZE:
                self._used_at.popitem(last=False)
        if due:
            thread = threading.Thread(target=self._write, args=(store, prefix), name="token-use", daemon=True)
            with suppress(RuntimeError):  # out of threads: the next use is written instead
                thread.start()

    def _write(self, store: Store, prefix: str) -> None:
        try:
            store.credentials.record_use(prefix)
        except HoldfastError:
            with self._lock:
                self._used_at.pop(prefix, None)


class Authenticator:
    """Identifies callers. Each request reads the store, so that a revoked token or a closed session fails at once.

    An open page that fetches itself again is the exception: the poll reads the sessions of all open pages together.
    """

    def __init__(self, options: WebOptions) -> None:
        self._options = options
        self._uses = TokenUses()
        self._confirmed: dict[str, Caller] = {}
        self._confirmed_at = float("-inf")
        self.failed_tries = FailedTries()

    def identify(self, connection: HTTPConnection, store: Callable[[], Store]) -> Caller:
        """The caller of a request; Unauthenticated, or SlowDown after too many wrong tokens.

        A request without any secret does not reach the store.
        """
        if (person := self._by_proxy(connection.headers, address_of(connection))) is not None:
            return person
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        cookie = connection.cookies.get(cookie_name(connection, secure=self._options.secure))
        if scheme and scheme.lower() != "bearer":
            raise Unauthenticated("only bearer tokens are accepted here", headers=CHALLENGE)
        if not scheme and not cookie:
            raise Unauthenticated("sign in first", headers=CHALLENGE)
        if scheme:
            caller = self.by_token(store(), token.strip())
            require_scope(caller, path_of(connection.scope))
            return caller
        return self._of_open_page(connection, cookie or "") or self.by_cookie(store(), cookie or "")

    def by_token(self, store: Store, token: str) -> Caller:
        with self.failed_tries.counted(Unauthenticated):
            prefix = prefix_of(token)
            credential = None if prefix is None else store.credentials.find(prefix)
            if credential is None or not is_secret_of(token, credential.hash):
                raise Unauthenticated("this token is not valid", headers=CHALLENGE)
        self._uses.note(store, credential.prefix)
        return Caller(credential.name, credential.role, credential.prefix, inbox=credential.inbox)

    def by_cookie(self, store: Store, cookie: str) -> Caller:
        with self.failed_tries.counted(Unauthenticated):
            session = store.sessions.find(cookie)
            if session is None:
                raise Unauthenticated("this session has ended", headers=CHALLENGE)
        if session.prefix is not None:
            self._uses.note(store, session.prefix)
        return Caller(session.name, session.role, session.prefix, session.hash)

    def has_metrics_token(self, connection: HTTPConnection) -> bool:
        """Whether the request carries HOLDFAST_METRICS_TOKEN, which workers accept too. No store is read for it.

        Strangers with wrong tokens delay no scrape. A short token can be guessed: it is refused while they try.
        """
        expected = os.environ.get(METRICS_TOKEN)
        if not expected:
            return False
        if len(expected) < MIN_METRICS_TOKEN_CHARS:
            self.failed_tries.check()
        token = connection.headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(token.encode("utf-8", "replace"), expected.encode())

    def form_token(self, store: Store, caller: Caller) -> str:
        return csrf.form_token(store, caller.session or caller.prefix or caller.name)

    def confirm(self, store: Store, callers: Collection[Caller]) -> set[Caller]:
        """Those of the viewers of open pages who still have access; one statement for all."""
        hashes = [each.session for each in callers if each.session]
        prefixes = [each.prefix for each in callers if each.prefix and not each.session]
        current = store.sessions.list_current(hashes, prefixes) if hashes or prefixes else set()
        # A person that a proxy names has neither: the proxy decides.
        confirmed = {each for each in callers if (each.session or each.prefix) in {None, *current}}
        self._confirmed = {each.session: each for each in confirmed if each.session}
        self._confirmed_at = time.monotonic()
        return confirmed

    def sign_out(self, caller: Caller) -> None:
        """End the reloads of open pages of a caller who signs out."""
        self._confirmed.pop(caller.session, None)

    def _of_open_page(self, connection: HTTPConnection, cookie: str) -> Caller | None:
        """The viewer of an open page that fetches itself again, if the poll has just confirmed the session."""
        if LIVE_HEADER not in connection.headers or connection.scope["method"] != "GET":
            return None
        if time.monotonic() - self._confirmed_at > CONFIRMED_S:
            return None
        return self._confirmed.get(hash_secret(cookie))

    def _by_proxy(self, headers: Headers, address: str | None) -> Caller | None:
        """The person that a trusted proxy names. The headers are ignored if they come from any other address."""
        options = self._options
        if options.proxy_header is None or address is None or not self._is_trusted(address):
            return None
        name = _single_header(headers, options.proxy_header)
        if not name:
            return None
        if "," in name:  # a proxy, or the client, has joined two headers
            hint = "Let the proxy replace the header, not add to it."
            raise Unauthenticated(f"the header {options.proxy_header} holds more than one name", hint=hint)
        groups = _single_header(headers, options.proxy_groups_header) if options.proxy_groups_header else ""
        known = (options.proxy_roles.get(group.strip()) for group in groups.split(","))
        roles = [role for role in (options.proxy_role, *known) if role is not None]
        try:
            person = checked_actor(name)
        except HoldfastError as error:
            raise Unauthenticated(f"the proxy sent no valid name: {error.message}") from None
        if not roles:
            raise Forbidden(f"{person} is in no group that may use this site")
        return Caller(person, max(roles, key=list(Role).index))

    def _is_trusted(self, address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(peer in network for network in self._options.trusted)


def _single_header(headers: Headers, name: str) -> str:
    """The value of a proxy's header. Of two, the client sent one, and it is unknown which."""
    values = headers.getlist(name)
    if len(values) > 1:
        raise Unauthenticated(f"the header {name} came more than once", hint="Let the proxy replace it, not add to it.")
    return values[0].strip() if values else ""


@contextmanager
def _for_strangers() -> Iterator[None]:
    """Errors of the store name hosts and users: the log gets them, a caller who is not known yet does not."""
    try:
        yield
    except HoldfastError as error:
        log.warning("authentication failed because the store does not answer: %s", error)
        raise Unavailable("the store does not answer", headers={"Retry-After": "2"}) from error


class AuthenticationMiddleware:
    """Identifies the caller of every request, limits requests at a time, and checks the CSRF token of every form."""

    def __init__(self, inner: ASGIApp, authenticator: Authenticator, store: Callable[[], Store]) -> None:
        self._inner = inner
        self._authenticator = authenticator
        self._store = store
        self._requests = RequestLimit(MAX_REQUESTS, "requests")
        self._caller_requests = RequestLimit(MAX_CALLER_REQUESTS, "requests of one caller")
        self._public = RequestLimit(MAX_PUBLIC_REQUESTS, "requests of strangers")
        self._address_requests = RequestLimit(MAX_ADDRESS_REQUESTS, "requests from one address")
        self._bodies = ArrivingBodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_of(scope)
        if path in HEALTH_PATHS or path.startswith(STATIC_PATH) or self._is_scrape(scope, path):
            await self._inner(scope, receive, send)
        elif path in PUBLIC_PATHS:
            # Strangers have slots of their own, and leave them soon: they cannot keep out those who are signed in.
            address = address_of(HTTPConnection(scope))
            body = await self._body(scope, receive, address)
            with self._public.slot(), self._address_requests.slot(address), _for_strangers():
                async with asyncio.timeout(PUBLIC_TIMEOUT_S):
                    await self._inner(scope, receive if body is None else csrf.replay_body(body), send)
        else:
            with _for_strangers():
                caller = await run_in_threadpool(self._authenticator.identify, HTTPConnection(scope), self._store)
            body = await self._body(scope, receive, caller)
            with self._caller_requests.slot(caller), self._requests.slot():
                scope["state"] = {**scope.get("state", {}), "caller": caller}
                await self._inner(scope, await self._checked(scope, receive, caller, body), send)

    def _is_scrape(self, scope: Scope, path: str) -> bool:
        """Whether this is a scrape with the metrics token, which takes no slot: strangers cannot blind monitoring."""
        return path == METRICS_PATH and self._authenticator.has_metrics_token(HTTPConnection(scope))

    async def _body(self, scope: Scope, receive: Receive, sender: object) -> bytes | None:
        """The body of a change, which arrives before the request takes a slot."""
        if scope["method"] != "POST":
            return None
        async with self._bodies.arrival(sender):
            return await csrf.read_body(receive)

    async def _checked(self, scope: Scope, receive: Receive, caller: Caller, body: bytes | None) -> Receive:
        """The body of a request, after the CSRF check of a form."""
        if body is None:
            return receive
        if not path_of(scope).startswith("/api/"):
            expected = await run_in_threadpool(self._form_token, caller)
            csrf.check_form_token(expected, Headers(scope=scope).get("content-type", ""), body)
        return csrf.replay_body(body)

    def _form_token(self, caller: Caller) -> str:
        return self._authenticator.form_token(self._store(), caller)
