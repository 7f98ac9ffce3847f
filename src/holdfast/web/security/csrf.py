"""CSRF protection: the origin check of every POST, and the token that every form of a page carries."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from holdfast.errors.http import Forbidden
from holdfast.store import Store

MAX_FIELDS = 2000
FORM_TYPE = "application/x-www-form-urlencoded"


def check_origin(headers: Headers, host: str) -> None:
    """Refuse a change that a browser sends from another site. Programs send neither header."""
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise Forbidden("this request comes from another site")
    origin = headers.get("origin")
    if origin is not None and _host_of(origin) != host:
        raise Forbidden("this request comes from another origin")


def _host_of(origin: str) -> str | None:
    """The host and port of an Origin header; None if it cannot be parsed, which matches no host."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def form_token(store: Store, owner: str) -> str:
    """The token for the forms of one session, token or person; other sites cannot know it."""
    secret = store.credentials.server_secret()
    return hmac.new(secret.encode(), f"form:{owner}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def check_form_token(expected: str, content_type: str, body: bytes) -> None:
    """Refuse a form that does not carry the *expected* token."""
    if content_type.partition(";")[0].strip().lower() != FORM_TYPE:
        raise Forbidden("a change is sent as a form", hint="Programs use the API: /api/v1.")
    try:
        pairs = parse_qsl(body.decode("ascii"), max_num_fields=MAX_FIELDS)
    except ValueError:
        raise Forbidden("the form cannot be read", hint="Load the page again.") from None
    token = next((value for name, value in pairs if name == "form_token"), "")
    if not hmac.compare_digest(expected.encode(), token.encode("utf-8", "replace")):
        raise Forbidden("this form was not sent from a page of the dashboard", hint="Load the page again.")


async def read_body(receive: Receive) -> bytes:
    """The whole body. ClientDisconnect if the client left before its end."""
    chunks = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(chunks)


def replay_body(body: bytes) -> Receive:
    """A *receive* that returns a body that was read before."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive
