"""Access tokens, and the other secrets of the dashboard: how they are drawn, and how they are checked.

Every secret here is 256 random bits, which nobody can guess. A plain SHA-256 is enough to store them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import datetime

from msgspec import Struct

from holdfast.domain.access.roles import Role
from holdfast.errors import Refused


class Credential(Struct, frozen=True):
    """A token as the store keeps it: its public prefix, and its hash."""

    prefix: str
    name: str
    role: Role
    hash: str
    actor: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


#: ``hf_`` and the public prefix, then the secret.
_TOKEN = re.compile(r"(hf_[a-z0-9]{8})_[A-Za-z0-9_-]{32,64}")


class NewToken(Struct, frozen=True):
    """A new token. *text* is shown once; the other fields are stored."""

    text: str
    prefix: str
    hash: str


def draw_token() -> NewToken:
    """A random token behind a public prefix."""
    prefix = f"hf_{secrets.token_hex(4)}"
    text = f"{prefix}_{draw_secret()}"
    return NewToken(text, prefix, hash_secret(text))


def draw_secret() -> str:
    """A random text of 256 bits: the cookie of a session, or a sign-in link."""
    return secrets.token_urlsafe(32)


def prefix_of(text: str) -> str | None:
    """The public prefix of a token; None if the text is not a token."""
    match = _TOKEN.fullmatch(text)
    return None if match is None else match[1]


def hash_secret(secret: str) -> str:
    """The stored hash of a token, a cookie or a link."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def is_secret_of(secret: str, expected: str) -> bool:
    """Whether the secret has this hash; takes the same time for a wrong one."""
    return hmac.compare_digest(hash_secret(secret), expected)


def check_api_key(key: str, required: str | None) -> None:
    """Refuse a change if the configuration requires a key, by its hash, and *key* is another one."""
    if required is not None and not is_secret_of(key, required.lower()):
        raise Refused("changes on this store need a key" + (", and this is another one" if key else ""))
