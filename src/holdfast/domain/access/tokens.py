"""Access tokens: how they are drawn, and how their secrets are checked."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import datetime

from msgspec import Struct

from holdfast.domain.access.roles import Role


class Credential(Struct, frozen=True):
    """A token as the store keeps it: its public prefix, and the hash of its secret."""

    prefix: str
    name: str
    role: Role
    salt: str
    hash: str
    actor: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


#: ``hf_`` and the public prefix, then the secret.
_TOKEN = re.compile(r"(hf_[a-z0-9]{8})_([A-Za-z0-9_-]{32,64})")
#: The cost of one guess: 16 MiB and about 40 ms. Tokens are random, so a higher cost adds no protection.
_SCRYPT_COST = {"n": 2**14, "r": 8, "p": 1, "maxmem": 64 * 2**20, "dklen": 32}


class NewToken(Struct, frozen=True):
    """A new token. *text* is shown once; the other fields are stored."""

    text: str
    prefix: str
    salt: str
    hash: str


def draw_token() -> NewToken:
    """A random token: 256 bits behind a public prefix."""
    prefix = f"hf_{secrets.token_hex(4)}"
    secret, salt = secrets.token_urlsafe(32), secrets.token_hex(16)
    return NewToken(f"{prefix}_{secret}", prefix, salt, hash_secret(secret, salt))


def split_token(text: str) -> tuple[str, str] | None:
    """The public prefix and the secret of a token; None if the text is not a token."""
    match = _TOKEN.fullmatch(text)
    return None if match is None else (match[1], match[2])


def hash_secret(secret: str, salt: str) -> str:
    """The stored hash of a secret."""
    return hashlib.scrypt(secret.encode(), salt=bytes.fromhex(salt), **_SCRYPT_COST).hex()


def is_secret_of(secret: str, *, salt: str, expected: str) -> bool:
    """Whether the secret matches; takes the same time for a wrong one."""
    return hmac.compare_digest(hash_secret(secret, salt), expected)
