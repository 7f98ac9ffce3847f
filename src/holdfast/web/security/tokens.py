"""Verification of API tokens, with a limit on failed logins."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from typing import Any

from holdfast.domain.access.roles import is_secret_of, split_token
from holdfast.errors import HoldfastError
from holdfast.store import Store
from holdfast.store.access.records import AccessState
from holdfast.web.errors import SlowDown, Unauthenticated
from holdfast.web.security.sessions import CHALLENGE

#: Failed logins from one address before it must wait.
FREE_FAILURES = 5
FIRST_WAIT_S, MAX_WAIT_S = 1.0, 60.0
#: Addresses and tokens that are kept in memory.
CACHE_SIZE = 10_000
#: The last use of a token is written to the store at most once in this time.
USE_INTERVAL_S = 60.0


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
            raise SlowDown(
                "too many wrong tokens from this address",
                hint="Wait, then try with the right one.",
                headers={"Retry-After": str(int(left) + 1)},
            )

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
        credential = store.credentials.door(prefix)
        with self._address_locks[hash(place) % len(self._address_locks)]:
            if not self._is_cached(credential, token):
                self._verify_secret(credential, secret, place)
                self._cache(credential, token)
        self._failed_logins.clear(place)
        return credential

    def _verify_secret(self, credential: AccessState, secret: str, place: str) -> None:
        """Unknown tokens take as long as wrong ones."""
        self._failed_logins.check(place)
        salt, expected = credential.salt or "00" * 16, credential.hash or ""
        if not is_secret_of(secret, salt=salt, expected=expected) or credential.hash is None:
            self._failed_logins.add(place)
            raise Unauthenticated("this is no token of this store", headers=CHALLENGE)

    def _is_cached(self, credential: AccessState, token: str) -> bool:
        with self._lock:
            return credential.hash is not None and self._verified.get(_digest(token)) == credential.hash

    def _cache(self, credential: AccessState, token: str) -> None:
        with self._lock:
            self._verified[_digest(token)] = credential.hash or ""
            _trim(self._verified)

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
            store.credentials.used(prefix)
        except HoldfastError:
            with self._lock:
                self._used_at.pop(prefix, None)


def _trim(cache: OrderedDict[str, Any]) -> None:
    while len(cache) > CACHE_SIZE:
        cache.popitem(last=False)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
