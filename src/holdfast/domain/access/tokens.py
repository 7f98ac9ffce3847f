"""Access tokens, and the other secrets of the dashboard: how they are drawn, and how they are checked.

Every secret here is 256 random bits, which cannot be guessed. A plain SHA-256 is enough to store them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime

from msgspec import Struct

from holdfast.domain.access.roles import Role
from holdfast.domain.names import checked_name
from holdfast.errors import InvalidInput, Refused


class Credential(Struct, frozen=True):
    """A token as the store keeps it: its public prefix, and its hash. *inbox*: the only one that it may use."""

    prefix: str
    name: str
    role: Role
    inbox: str | None
    hash: str
    actor: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


#: The scope of a token, as people write it.
_INBOX_SCOPE = "inbox="


def parse_scope(text: str) -> str:
    """The inbox in a scope such as ``inbox=pages``.

    Raises:
        InvalidInput: It is not a scope.
    """
    name = text.removeprefix(_INBOX_SCOPE)
    if name == text or not name:
        raise InvalidInput(f"{text[:40]!r} is not a scope", hint="A token can be limited to an inbox: inbox=NAME.")
    return checked_name(name, label="the inbox")


def format_scope(inbox: str | None) -> str | None:
    """The scope of a token as text; None if it has no limit."""
    return None if inbox is None else f"{_INBOX_SCOPE}{inbox}"


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


#: Bytes of the part of a sealed text that proves it.
_TAG_SIZE = 16


def seal(text: str, secret: str, purpose: str) -> str:
    """Encrypt a text that a client keeps and returns, such as a cursor. Only its *purpose* accepts it again."""
    data, key = text.encode(), _sealing_key(secret, purpose)
    tag = hmac.digest(key, data, "sha256")[:_TAG_SIZE]
    return urlsafe_b64encode(tag + _encrypted(data, key, tag)).decode().rstrip("=")


def unseal(sealed: str, secret: str, purpose: str) -> str:
    """The text that :func:`seal` encrypted for the same purpose."""
    key = _sealing_key(secret, purpose)
    try:
        raw = urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))
    except ValueError:
        raw = b""
    tag, data = raw[:_TAG_SIZE], _encrypted(raw[_TAG_SIZE:], key, raw[:_TAG_SIZE])
    if not hmac.compare_digest(tag, hmac.digest(key, data, "sha256")[:_TAG_SIZE]):
        raise InvalidInput(f"{sealed[:40]!r} is not a cursor of this list", hint="Start again from its beginning.")
    return data.decode()


def _sealing_key(secret: str, purpose: str) -> bytes:
    return hmac.digest(secret.encode(), f"seal:{purpose}".encode(), "sha256")


def _encrypted(data: bytes, key: bytes, tag: bytes) -> bytes:
    """Encrypt, or decrypt, with a key stream that the tag makes different for each text."""
    stream = hashlib.shake_256(key + tag).digest(len(data))
    return bytes(byte ^ other for byte, other in zip(data, stream, strict=True))
