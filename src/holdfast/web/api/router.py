"""Routes of the HTTP API: every endpoint parses, checks, runs and answers a request in the same way."""

from __future__ import annotations

import hashlib
import re
import time
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.domain.names import checked_text
from holdfast.errors import Conflict, HoldfastError, InvalidInput
from holdfast.errors.http import HttpError, WrongType
from holdfast.output.envelope import Envelope, Failure, Meta
from holdfast.web.api import batches, fleet, jobs, schedules
from holdfast.web.api.openapi import BASE, Endpoint, build_document
from holdfast.web.errors import error_answer
from holdfast.web.request import Request, Threads

if TYPE_CHECKING:
    from holdfast.web.app import Site

ENDPOINTS: tuple[Endpoint, ...] = tuple(
    endpoint
    for module in (jobs, batches, schedules, fleet)
    for endpoint in vars(module).values()
    if isinstance(endpoint, Endpoint)
)
#: Refusals that may change later: they are not stored under an idempotency key.
TRANSIENT_STATUSES = (401, 403, 429)
IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,200}")


def routes(site: Site) -> list[BaseRoute]:
    """The routes of the endpoints, of the event stream, and of the OpenAPI document."""
    document = build_document(ENDPOINTS)

    async def describe(request: HttpRequest) -> Response:
        # Mounted in another application, the paths of the document begin below its own.
        root = str(request.scope.get("root_path", "")).rstrip("/")
        return json_response(msgspec.json.encode({**document, "servers": [{"url": root or "/"}]}))

    async def events(request: HttpRequest) -> Response:
        return await site.live.answer(request, site.is_current)

    threads = Threads()
    return [
        *(Route(f"{BASE}{each.path}", _handler(site, each, threads), methods=[each.method]) for each in ENDPOINTS),
        Route(f"{BASE}/events", events, methods=["GET"]),
        Route(f"{BASE}/openapi.json", describe, methods=["GET"]),
    ]


def _handler(site: Site, endpoint: Endpoint, threads: Threads) -> Any:
    async def answer(http: HttpRequest) -> Response:
        body = await http.body() if endpoint.method == "POST" else b""
        return await threads.answer(http, _answer, Request(site, http), endpoint, body)

    return answer


class _Call(Struct, frozen=True):
    """A request of an endpoint with its parsed parameters."""

    endpoint: Endpoint
    request: Request
    number: int
    query: Any
    body: Any

    @property
    def dry_run(self) -> bool:
        return bool(getattr(self.body, "dry_run", False))

    def run(self) -> Response:
        began = time.monotonic()
        data = self.endpoint.call(self.request, number=self.number, query=self.query, body=self.body)
        return json_response(encode_success(data, began), 200 if self.dry_run else self.endpoint.status)


def _answer(request: Request, endpoint: Endpoint, body: bytes) -> Response:
    request.require(endpoint.role)
    call = _Call(
        endpoint, request, _parse_id(request), _parse_query(endpoint, request), _parse_body(endpoint, request, body)
    )
    key = request.http.headers.get("idempotency-key") if endpoint.method == "POST" else None
    return call.run() if key is None or call.dry_run else _run_once(call, key, body)


def _run_once(call: _Call, key: str, body: bytes) -> Response:
    """Run a request once per idempotency key; a repeated request gets the stored answer."""
    if not IDEMPOTENCY_KEY.fullmatch(key):
        raise InvalidInput("an Idempotency-Key has 1 to 200 visible ASCII characters")
    http, caller = call.request.http, call.request.caller
    digest = hashlib.sha256(f"{http.method} {http.url.path}\n".encode() + body).hexdigest()
    credential = caller.prefix or f"name:{caller.name}"
    keys = call.request.actions.store.idempotency_keys
    stored = keys.claim(credential, key, digest)
    if stored is not None:
        if stored.digest != digest:
            raise Conflict("this Idempotency-Key came with another request", hint="Take a new key for a new request.")
        if stored.status is None or stored.body is None:
            hint = "Wait for it; if its server was stopped, look whether it was done, and take a new key."
            raise Conflict("a request with this Idempotency-Key is under way", hint=hint)
        return json_response(stored.body.encode(), stored.status, {"Idempotent-Replay": "true"})
    try:
        answer = call.run()
    except (HoldfastError, HttpError) as error:
        status, failure, headers = error_answer(error)
        if status >= 500 or status in TRANSIENT_STATUSES:
            keys.release(credential, key)
            raise
        answer = json_response(msgspec.json.encode(error_envelope(failure)), status, headers)
    except BaseException:
        keys.release(credential, key)
        raise
    keys.keep(credential, key, answer.status_code, bytes(answer.body).decode())
    return answer


def _parse_id(request: Request) -> int:
    number: int = request.http.path_params.get("id", 0)
    if number >= 2**63:
        raise InvalidInput("this is no number of ours")
    return number


def _parse_query(endpoint: Endpoint, request: Request) -> Any:
    """Convert the query string to the type that the endpoint declares. A refusal names the parameter."""
    values: dict[str, Any] = {}
    for name, value in request.http.query_params.multi_items():
        if name in values:
            raise InvalidInput(f"{name[:40]!r} is given twice")
        values[name] = checked_text(value, label=name[:40])
    unknown = sorted(set(values) - set(endpoint.query.__struct_fields__))
    if unknown:
        known = ", ".join(endpoint.query.__struct_fields__) or "nothing"
        raise InvalidInput(f"nobody knows {unknown[0][:40]!r} here", hint=f"One may ask: {known}.")
    try:
        return msgspec.convert(values, endpoint.query, strict=False)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise InvalidInput(f"the address does not fit: {error}") from None


def _parse_body(endpoint: Endpoint, request: Request, body: bytes) -> Any:
    if endpoint.body is None:
        return None
    content_type = request.http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise WrongType("the body is read as JSON")
    try:
        return msgspec.json.decode(body, type=endpoint.body)
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"the body does not fit: {error}") from None


def error_envelope(failure: Failure) -> Any:
    return msgspec.to_builtins(Envelope(status="error", error=failure, meta=Meta(0)))


def encode_success(data: Any, began: float) -> bytes:
    """The envelope of an answer as JSON; *began* is the start of the request on the monotonic clock."""
    spent = Meta(int((time.monotonic() - began) * 1000))
    return msgspec.json.encode(Envelope(status="success", data=data, meta=spent))


def json_response(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")
