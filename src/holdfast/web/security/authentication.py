"""Who asks: by token, by session, through a trusted proxy, or anyone where nobody else can reach the server."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from holdfast.domain.access.roles import Role, is_secret_of, split_token
from holdfast.domain.text import checked_actor
from holdfast.errors import HoldfastError
from holdfast.store import Store
from holdfast.store.access.credentials import AccessState
from holdfast.web.errors import SlowDown, Unauthenticated
from holdfast.web.settings import WebOptions

COOKIE = "holdfast_session"
#: Wrong tokens from one address before it has to wait; how long at first and at most, in seconds.
GUESSES, FIRST_WAIT, LONGEST_WAIT = 5, 1.0, 60.0
#: Addresses and tokens that are remembered.
REMEMBERED = 10_000
#: The use of a token is written down once in so many seconds.
NOTED_EVERY = 60.0
#: A request that came through somebody else's hands says so in one of these.
FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


class Caller(Struct, frozen=True):
    """Who asks, and what they may do. *prefix* is that of their token; *nonce* that of their session."""

    name: str
    role: Role
    prefix: str | None = None
    nonce: str = ""


class Guesses:
    """Slows down who guesses, by address; nobody else waits for it."""

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, address: str) -> None:
        """Refuse one who has guessed too often.

        Raises:
            SlowDown: For a while; it says how long.
        """
        with self._lock:
            _, until = self._wrong.get(address, (0, 0.0))
        left = until - time.monotonic()
        if left > 0:
            raise SlowDown(
                "too many wrong tokens from this address",
                hint="Wait, then try with the right one.",
                headers={"Retry-After": str(int(left) + 1)},
            )

    def wrong(self, address: str) -> None:
        with self._lock:
            count = self._wrong.pop(address, (0, 0.0))[0] + 1
            wait = 0.0 if count < GUESSES else min(FIRST_WAIT * 2 ** (count - GUESSES), LONGEST_WAIT)
            self._wrong[address] = (count, time.monotonic() + wait)
            while len(self._wrong) > REMEMBERED:
                self._wrong.popitem(last=False)

    def right(self, address: str) -> None:
        with self._lock:
            self._wrong.pop(address, None)


class Authenticator:
    """Finds out who asks. Every request looks at the door once, so that a revoked token opens nothing at once."""

    def __init__(self, options: WebOptions, *, local: str) -> None:
        self._options = options
        self._local = local
        self._guesses = Guesses()
        #: Tokens that were right: a scrypt for each request would be a way to keep the server busy.
        self._right: OrderedDict[str, str] = OrderedDict()
        #: When the use of a token was written down last; and what signs sessions, which never changes.
        self._noted: OrderedDict[str, float] = OrderedDict()
        self._secret: str | None = None
        #: Sessions that were signed out of, by their nonces.
        self._finished: OrderedDict[str, None] = OrderedDict()
        #: Held while a token is tried, by address.
        self._turns = [threading.Lock() for _ in range(64)]
        self._lock = threading.Lock()

    def caller(self, store: Store, headers: Mapping[str, str], cookie: str | None, address: str | None) -> Caller:
        """Who asks.

        Raises:
            Unauthenticated: Nobody who is known.
            SlowDown: Too many wrong tokens came from this address.
        """
        if (person := self._proxied(headers, address)) is not None:
            return person
        scheme, _, text = headers.get("authorization", "").partition(" ")
        if scheme:
            if scheme.lower() != "bearer":
                raise Unauthenticated("this way to say who you are is not known here", headers=_ASK)
            return self.by_token(store, text.strip(), address)
        if not cookie:
            return self._anyone(store, headers)
        try:
            return self._by_cookie(store, cookie)
        except Unauthenticated as refusal:
            # Another server on this machine may have left it: where anyone may come in, so may who carries it.
            with suppress(Unauthenticated):
                return self._anyone(store, headers)
            raise refusal from None

    def by_token(self, store: Store, text: str, address: str | None) -> Caller:
        """The caller whose token this is."""
        place = address or "?"
        parts = split_token(text)
        if parts is None:
            self._guesses.check(place)
            self._guesses.wrong(place)
            raise Unauthenticated("this is no token of this store", headers=_ASK)
        prefix, secret = parts
        door = store.credentials.access_state(prefix)
        # One guess at a time from an address: what many send at once is counted before the next of them is looked at.
        with self._turns[hash(place) % len(self._turns)]:
            if not self._is_right(door, text):
                self._try(door, secret, place)
                self._remember(door, text)
        self._guesses.right(place)
        return self._known(store, door)

    def _try(self, door: AccessState, secret: str, place: str) -> None:
        """Whether a secret is that of a token; it takes as long for one that does not exist.

        Raises:
            Unauthenticated: It is not.
            SlowDown: Too many wrong ones came from this place.
        """
        self._guesses.check(place)
        salt, expected = door.salt or "00" * 16, door.hash or ""
        if not is_secret_of(secret, salt=salt, expected=expected) or door.hash is None:
            self._guesses.wrong(place)
            raise Unauthenticated("this is no token of this store", headers=_ASK)

    def _is_right(self, door: AccessState, text: str) -> bool:
        with self._lock:
            return door.hash is not None and self._right.get(_digest(text)) == door.hash

    def _remember(self, door: AccessState, text: str) -> None:
        with self._lock:
            self._right[_digest(text)] = door.hash or ""
            while len(self._right) > REMEMBERED:
                self._right.popitem(last=False)

    def _known(self, store: Store, door: AccessState, nonce: str = "") -> Caller:
        if door.revoked_at is not None or door.name is None or door.role is None:
            raise Unauthenticated("this token was revoked", headers=_ASK)
        if self._is_to_be_noted(door.prefix or ""):
            # Nobody who looks waits for a writer.
            note = threading.Thread(target=self._note, args=(store, door.prefix or ""), name="token-use", daemon=True)
            with suppress(RuntimeError):  # no more threads: it is not worth an error
                note.start()
        return Caller(door.name, door.role, door.prefix, nonce)

    def _is_to_be_noted(self, prefix: str) -> bool:
        """Whether a minute has passed since the use of a token was written down."""
        with self._lock:
            now, before = time.monotonic(), self._noted.pop(prefix, float("-inf"))
            due = now - before >= NOTED_EVERY
            self._noted[prefix] = now if due else before
            while len(self._noted) > REMEMBERED:
                self._noted.popitem(last=False)
        return due

    def _note(self, store: Store, prefix: str) -> None:
        """Write down that a token was used; where that cannot be, the next use is written down."""
        try:
            store.credentials.record_use(prefix)
        except HoldfastError:
            with self._lock:
                self._noted.pop(prefix, None)

    def _session_secret(self, store: Store) -> str:
        """What signs sessions and forms, asked for once."""
        if self._secret is None:
            self._secret = store.credentials.session_secret(secrets.token_hex(32))
        return self._secret

    # -- sessions --------------------------------------------------------------------------

    def session(self, store: Store, caller: Caller) -> str:
        """A cookie that stands for a caller who has shown a token."""
        secret = self._session_secret(store)
        until = int(time.time() + self._options.session.total_seconds())
        body = f"{caller.prefix}.{until}.{secrets.token_hex(8)}"
        return f"{body}.{_sign(secret, 'session', body)}"

    def _by_cookie(self, store: Store, cookie: str) -> Caller:
        body, _, signature = cookie.rpartition(".")
        parts = body.split(".")
        if len(parts) != 3 or len(cookie) > 300:
            raise Unauthenticated("this session is none of ours", headers=_ASK)
        door = store.credentials.access_state(parts[0])
        if door.secret is None or not _is_signed(door.secret, "session", body, signature):
            raise Unauthenticated("this session is none of ours", headers=_ASK)
        if int(parts[1]) < time.time():
            raise Unauthenticated("this session is over", headers=_ASK)
        if self._has_ended(parts[2]):
            raise Unauthenticated("this session was signed out of", headers=_ASK)
        return self._known(store, door, parts[2])

    def end(self, caller: Caller) -> None:
        """Sign out of a session: its cookie opens nothing any more, whoever has a copy.

        This server remembers it, as long as it runs; another server of the store takes the cookie until it runs out, or
        until its token is revoked.
        """
        with self._lock:
            self._finished[caller.nonce] = None
            while len(self._finished) > REMEMBERED:
                self._finished.popitem(last=False)

    def _has_ended(self, nonce: str) -> bool:
        with self._lock:
            return nonce in self._finished

    def form_token(self, store: Store, caller: Caller) -> str:
        """What a form of this caller has to carry: another site cannot know it."""
        secret = self._session_secret(store)
        return _sign(secret, "form", f"{caller.prefix or caller.name}.{caller.nonce}")

    def is_form_token(self, store: Store, caller: Caller, given: str) -> bool:
        """Whether a form carries what it has to."""
        return hmac.compare_digest(self.form_token(store, caller).encode(), given.encode("utf-8", "replace"))

    def still(self, store: Store, caller: Caller) -> bool:
        """Whether a caller who came in before may stay: for streams, which ask again and again."""
        if caller.nonce and self._has_ended(caller.nonce):
            return False
        if caller.prefix is not None:
            door = store.credentials.access_state(caller.prefix)
            return door.prefix is not None and door.revoked_at is None
        return self._options.proxy_header is not None or not store.credentials.access_state(None).locked

    # -- without a token -------------------------------------------------------------------

    def _proxied(self, headers: Mapping[str, str], address: str | None) -> Caller | None:
        """The person whom a trusted proxy names; the header of anybody else is not looked at."""
        name = self._options.proxy_header and headers.get(self._options.proxy_header.lower())
        if not name or address is None or not self._trusts(address):
            return None
        try:
            return Caller(checked_actor(name.strip()), self._options.proxy_role)
        except HoldfastError as error:
            raise Unauthenticated(f"the proxy names nobody: {error.message}") from None

    def _trusts(self, address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(peer in network for network in self._options.trusted)

    def _anyone(self, store: Store, headers: Mapping[str, str]) -> Caller:
        role = self._options.anyone
        if role is None or any(name in headers for name in FORWARDED):
            raise Unauthenticated("a token is needed here", headers=_ASK)
        if store.credentials.access_state(None).locked:
            raise Unauthenticated("a token is needed here", headers=_ASK)
        return Caller(self._local, role)


_ASK = {"WWW-Authenticate": 'Bearer realm="holdfast"'}


def _sign(secret: str, what: str, text: str) -> str:
    return hmac.new(secret.encode(), f"{what}:{text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _is_signed(secret: str, what: str, text: str, signature: str) -> bool:
    return hmac.compare_digest(_sign(secret, what, text).encode(), signature.encode("utf-8", "replace"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
