"""What every request has to pass before anything is done: host, method, origin, size; and what every answer carries."""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors.http import Forbidden, NoSuchPage, TooLarge, WrongHost, WrongMethod
from holdfast.web.errors import error_answer
from holdfast.web.settings import LOOPBACK, WebOptions

log = logging.getLogger("holdfast.web")

METHODS = ("GET", "HEAD", "POST")
#: Nothing from elsewhere, and no code in a page itself.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
LONGEST_URL = 8000

#: Answers a request that was refused, or that failed.
Tell = Callable[[Scope, Exception], ASGIApp]


class RequestChecks:
    """Stands before the site: what it refuses reaches nobody."""

    def __init__(self, inner: ASGIApp, options: WebOptions, *, tell: Tell) -> None:
        self._inner = inner
        self._options = options
        self._hosts = {*LOOPBACK, *options.hosts}
        self._tell = tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        answer = self._answering(scope, send)
        try:
            self._check(scope)
            await self._inner(scope, self._limited(scope, receive), answer)
        except Exception as error:
            if error_answer(error)[0] == 500:
                log.exception("a request failed")
            if answer.begun:
                raise
            await self._tell(scope, error)(scope, receive, answer)

    # -- requests --------------------------------------------------------------------------

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if len(headers.getlist("host")) != 1 or _name(host) not in self._hosts:
            raise WrongHost("this server does not answer to that name")
        if len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"]) > LONGEST_URL:
            raise TooLarge("the address is too long")
        _refuse_large_numbers(scope["path"])
        if scope["method"] not in METHODS:
            raise WrongMethod("this server is asked by GET and POST", headers={"Allow": ", ".join(METHODS)})
        if scope["method"] == "POST":
            _refuse_other_sites(headers, host)
        size = headers.get("content-length", "0")
        if not (size.isascii() and size.isdigit() and len(size) < 16) or int(size) > self._options.largest_body:
            raise TooLarge(f"a request takes at most {self._options.largest_body:,} bytes")

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """The body, as long as it stays within its limit: its length may be a lie, or not be told."""
        taken = 0

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._options.largest_body:
                raise TooLarge(f"a request takes at most {self._options.largest_body:,} bytes")
            return message

        del scope
        return limited

    def _answering(self, scope: Scope, send: Send) -> Answering:
        return Answering(send, secure=self._options.secure, path=scope["path"])


class Answering:
    """Sends an answer with the headers that every answer has."""

    def __init__(self, send: Send, *, secure: bool, path: str) -> None:
        self._send = send
        self._secure = secure
        self._path = path
        self.begun = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if "/static/" not in self._path:
                headers.setdefault("Cache-Control", "no-store")
            if self._secure:
                headers.setdefault("Strict-Transport-Security", "max-age=31536000")
        await self._send(message)


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.rpartition(":")[0] if ":" in host else host


def _place(origin: str) -> str | None:
    """The host and port in an Origin header; None: it cannot be read, and is nobody of ours."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _refuse_large_numbers(path: str) -> None:
    """A store has no such numbers, and reading one of thousands of digits is refused by Python itself.

    Raises:
        NoSuchPage: One stands in the path.
    """
    for part in path.split("/"):
        if part.isascii() and part.isdigit() and (len(part) > 19 or int(part) >= 2**63):
            raise NoSuchPage("there is nothing at this address")


def _refuse_other_sites(headers: Headers, host: str) -> None:
    """A change comes from a page of this server, or from a program, which says no origin.

    Raises:
        Forbidden: It comes from elsewhere.
    """
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise Forbidden("this request comes from another site")
    origin = headers.get("origin")
    if origin is not None and _place(origin) != host:
        raise Forbidden("this request comes from another origin")
