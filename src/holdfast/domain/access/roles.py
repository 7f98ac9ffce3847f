"""Who may do what from afar: roles, tokens, and what is written down about acts."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from holdfast.errors import InvalidInput


class Role(StrEnum):
    """What a credential may do: each role may do all that the one before it may."""

    #: Look at everything.
    VIEWER = "viewer"
    #: Act on what is there, and enqueue jobs of kinds that applications have registered.
    OPERATOR = "operator"
    #: Also add programs, change schedules, and remove things for good.
    ADMIN = "admin"

    def may(self, has_dependents: Role) -> bool:
        """Whether this role is enough where *needed* is asked for."""
        order = list(Role)
        return order.index(self) >= order.index(has_dependents)


#: Errors are kept as they are: whoever may search in them could guess a masked secret letter by letter.
SEARCHING = "searching in the texts of errors"


class Via(StrEnum):
    """By which way somebody acted."""

    CLI = "cli"
    WEB = "web"
    API = "api"


class AuditEntry(Struct, frozen=True):
    """What somebody did: *verb* to *target*, by which *count* things were changed."""

    id: int
    at: datetime
    actor: str
    via: Via
    action: str
    target: str
    count: int | None
    note: str | None


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
#: The cost of a guess: 16 MiB and some 40 ms. Tokens are random, so that more would protect nothing.
_COST = {"n": 2**14, "r": 8, "p": 1, "maxmem": 64 * 2**20, "dklen": 32}


class NewToken(Struct, frozen=True):
    """A token that was just drawn. *text* is shown once; the rest is kept."""

    text: str
    prefix: str
    salt: str
    hash: str


def draw_token() -> NewToken:
    """A token nobody has seen before: 256 bits behind a public prefix."""
    prefix = f"hf_{secrets.token_hex(4)}"
    secret, salt = secrets.token_urlsafe(32), secrets.token_hex(16)
    return NewToken(f"{prefix}_{secret}", prefix, salt, hashed(secret, salt))


def split_token(text: str) -> tuple[str, str] | None:
    """The public prefix and the secret of a token; None: it cannot be one."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else (found[1], found[2])


def hashed(secret: str, salt: str) -> str:
    """The hash that is kept of a secret."""
    return hashlib.scrypt(secret.encode(), salt=bytes.fromhex(salt), **_COST).hex()


def is_secret_of(secret: str, *, salt: str, expected: str) -> bool:
    """Whether this is the secret of a credential; takes as long for a wrong one."""
    return hmac.compare_digest(hashed(secret, salt), expected)


def checked_role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise InvalidInput(f"there is no role {text[:40]!r}", hint=f"Roles: {', '.join(Role)}.") from None
