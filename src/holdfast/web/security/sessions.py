"""Sessions: signed cookies that stand for a token which was shown once."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from datetime import timedelta

from holdfast.errors.http import Unauthenticated
from holdfast.store import Store
from holdfast.store.access.credentials import AccessState

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
        """The key that signs cookies and forms; it never changes, so that one read is enough."""
        if self._secret is None:
            self._secret = store.credentials.session_secret(secrets.token_hex(32))
        return self._secret

    def create(self, store: Store, prefix: str | None) -> str:
        """A cookie for the token with this prefix."""
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
        if credential.secret is None or not _is_signed(credential.secret, body, signed):
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


def _is_signed(secret: str, body: str, signed: str) -> bool:
    return hmac.compare_digest(signature(secret, "session", body).encode(), signed.encode("utf-8", "replace"))
