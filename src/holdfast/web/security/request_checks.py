"""Checks that every request must pass (host, method, CSRF origin, size), and the headers of every answer."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors.http import NoSuchPage, TooLarge, TooSlow, WrongHost, WrongMethod
from holdfast.web.errors import error_answer, error_response
from holdfast.web.options import LOOPBACK, WebOptions
from holdfast.web.request import path_of
from holdfast.web.security import csrf
from holdfast.web.security.authentication import HEALTH_PATHS

log = logging.getLogger("holdfast.web")

METHODS = ("GET", "HEAD", "POST")
#: Pages load nothing from other sites, and contain no inline code or style.
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
MAX_URL_LENGTH = 8000
#: Time for the body of a request.
BODY_TIMEOUT_S = 30.0


class RequestChecks:
    """The outermost layer of the site. It also answers requests that were refused or failed."""

    def __init__(self, inner: ASGIApp, options: WebOptions) -> None:
        self._inner = inner
        self._options = options
        self._hosts = {*LOOPBACK, *options.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        answer = AnswerSender(send, secure=self._options.secure, path=scope["path"])
        try:
            self._check(scope)
            await self._inner(scope, self._limit_body(receive), answer)
        except ClientDisconnect:
            return  # it left before its request was complete: no one reads an answer, and nothing is wrong here
        except Exception as error:
            if error_answer(error)[0] == 500:
                log.exception("a request failed")
            if answer.started:
                raise
            await error_response(scope, error)(scope, receive, answer)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if path_of(scope) in HEALTH_PATHS and scope["method"] in ("GET", "HEAD"):
            return  # a probe names the address of a pod
        if len(headers.getlist("host")) != 1 or _without_port(host) not in self._hosts:
            raise WrongHost("this server does not answer to that name")
        if len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"]) > MAX_URL_LENGTH:
            raise TooLarge("the address is too long")
        _check_ids(scope["path"])
        if scope["method"] not in METHODS:
            raise WrongMethod("the server accepts only GET and POST", headers={"Allow": ", ".join(METHODS)})
        if scope["method"] == "POST":
            csrf.check_origin(headers, host)
        size = headers.get("content-length", "0")
        if not (size.isascii() and size.isdigit() and len(size) < 16) or int(size) > self._options.largest_body:
            raise self._too_large()

    def _limit_body(self, receive: Receive) -> Receive:
        """Limit the time of the body, and count it as it arrives: Content-Length may be wrong or missing."""
        size, complete = 0, False
        deadline = asyncio.get_running_loop().time() + BODY_TIMEOUT_S

        async def limited() -> Message:
            nonlocal size, complete
            try:
                # After the body comes the end of the connection, which may take as long as it likes.
                async with asyncio.timeout_at(None if complete else deadline):
                    message = await receive()
            except TimeoutError:
                raise TooSlow("the body of the request did not arrive in time") from None
            complete = not message.get("more_body", False)
            size += len(message.get("body", b""))
            if size > self._options.largest_body:
                raise self._too_large()
            return message

        return limited

    def _too_large(self) -> TooLarge:
        return TooLarge(f"a request takes at most {self._options.largest_body:,} bytes")


class AnswerSender:
    """Sends an answer with the headers that every answer has."""

    def __init__(self, send: Send, *, secure: bool, path: str) -> None:
        self._send = send
        self._secure = secure
        self._path = path
        self.started = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if "/static/" not in self._path:
                headers.setdefault("Cache-Control", "no-store")
            if self._secure:
                headers.setdefault("Strict-Transport-Security", "max-age=31536000")
        await self._send(message)


def _without_port(host: str) -> str:
    """The name in a Host header; empty if that holds anything but a name and a port, such as ``user@name``."""
    match = re.fullmatch(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?", host)
    return match[1] if match else ""


def _check_ids(path: str) -> None:
    """Refuse ids beyond 63 bits: the store has none, and Python refuses to parse thousands of digits."""
    for segment in path.split("/"):
        if segment.isascii() and segment.isdigit() and (len(segment) > 19 or int(segment) >= 2**63):
            raise NoSuchPage("there is nothing at this address")
