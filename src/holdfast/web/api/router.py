"""Routes of the HTTP API: every endpoint parses, checks, runs and answers a request in the same way."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.domain.names import checked_text
from holdfast.errors import Conflict, HoldfastError, InvalidInput
from holdfast.errors.http import HttpError, WrongType
from holdfast.output.envelope import Envelope, Meta
from holdfast.web.api import batches, fleet, inboxes, jobs, schedules
from holdfast.web.api.openapi import BASE, Endpoint, build_document
from holdfast.web.errors import error_answer, error_envelope
from holdfast.web.request import Request, Threads

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.web.app import Site

ENDPOINTS: tuple[Endpoint, ...] = tuple(
    endpoint
    for module in (jobs, batches, inboxes, schedules, fleet)
    for endpoint in vars(module).values()
    if isinstance(endpoint, Endpoint)
)
#: Refusals that may change later: they are not stored under an idempotency key.
TRANSIENT_STATUSES = (401, 403, 429)
IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,200}")


def routes(site: Site) -> list[BaseRoute]:
    def describe(request: HttpRequest) -> Response:
        # Mounted in another application, the paths of the document begin below its own.
        servers = [{"url": str(request.scope.get("root_path", "")).rstrip("/") or "/"}]
        return json_response(msgspec.json.encode({**build_document(ENDPOINTS), "servers": servers}))

    threads = Threads()
    return [
        *(Route(f"{BASE}{each.path}", _handler(site, each, threads), methods=[each.method]) for each in ENDPOINTS),
        Route(f"{BASE}/events", site.live.answer, methods=["GET"]),
        Route(f"{BASE}/openapi.json", describe, methods=["GET"]),
    ]


def _handler(site: Site, endpoint: Endpoint, threads: Threads) -> Any:
    async def answer(http: HttpRequest) -> Response:
        body = await http.body() if endpoint.method == "POST" else b""
        return await threads.answer(http, _answer, Request(site, http), endpoint, body)

    return answer


def _answer(request: Request, endpoint: Endpoint, body: bytes) -> Response:
    request.require(endpoint.role)
    number: int = request.http.path_params.get("id", 0)
    values = {"query": _parse_query(endpoint, request), "body": _parse_body(endpoint, request, body)}
    dry_run = bool(getattr(values["body"], "dry_run", False))

    def run(request: Request) -> Response:
        began = time.monotonic()
        data = endpoint.handler(request, *(values.get(name, number) for name in endpoint.parameters))
        spent = Meta(int((time.monotonic() - began) * 1000))
        envelope = msgspec.json.encode(Envelope(status="success", data=data, meta=spent))
        return json_response(envelope, 200 if dry_run else endpoint.status)

    key = request.http.headers.get("idempotency-key") if endpoint.method == "POST" else None
    return run(request) if key is None or dry_run else _run_once(run, request, key, body)


def _run_once(run: Callable[[Request], Response], request: Request, key: str, body: bytes) -> Response:
    """Run a request once per idempotency key; a repeated request gets the stored answer.

    The changes, their audit entries and the answer are one transaction. A refusal rolls it back and is stored alone.
    """
    if not IDEMPOTENCY_KEY.fullmatch(key):
        raise InvalidInput("an Idempotency-Key has 1 to 200 visible ASCII characters")
    http = request.http
    digest = hashlib.sha256(f"{http.method} {http.url.path}\n".encode() + body).hexdigest()
    try:
        return _answer_once(request, key, digest, lambda store: run(request.within(store)))
    except (HoldfastError, HttpError) as error:
        status, failure, headers = error_answer(error)
        if status >= 500 or status in TRANSIENT_STATUSES:
            raise
        refusal = json_response(msgspec.json.encode(error_envelope(failure)), status, headers)
    return _answer_once(request, key, digest, lambda _: refusal)


def _answer_once(request: Request, key: str, digest: str, answer: Callable[[Store], Response]) -> Response:
    """Store the answer under the key, in the transaction that makes it; or return the one that is stored."""
    credential = request.caller.prefix or f"name:{request.caller.name}"
    with request.actions.store.single_transaction() as store:
        stored = store.idempotency_keys.claim(credential, key, digest)
        if stored is None:
            response = answer(store)
            store.idempotency_keys.keep(credential, key, response.status_code, bytes(response.body).decode())
            return response
    if stored.digest != digest:
        raise Conflict("this Idempotency-Key came with another request", hint="Take a new key for a new request.")
    return json_response(stored.body.encode(), stored.status, {"Idempotent-Replay": "true"})


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
        raise InvalidInput(f"unknown parameter {unknown[0][:40]!r}", hint=f"Parameters: {known}.")
    try:
        return msgspec.convert(values, endpoint.query, strict=False)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise InvalidInput(f"the parameters are invalid: {error}") from None


def _parse_body(endpoint: Endpoint, request: Request, body: bytes) -> Any:
    if endpoint.body is None:
        return None
    content_type = request.http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise WrongType("the body must be JSON")
    try:
        return msgspec.json.decode(body, type=endpoint.body)
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"the body is invalid: {error}") from None


def json_response(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")
