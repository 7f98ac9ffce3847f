"""The HTTP API: every endpoint is read, checked, carried out and answered in the same way."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.domain.text import checked_text
from holdfast.errors import Conflict, HoldfastError, InvalidInput
from holdfast.web.api import batches, fleet, jobs, schedules
from holdfast.web.api.endpoint import ApiRequest, Endpoint, refuse_role
from holdfast.web.api.envelope import body_of, failed, json_response
from holdfast.web.api.openapi import BASE, document
from holdfast.web.errors import HttpError, WrongType, told
from holdfast.web.security.authentication import Caller
from holdfast.web.security.entry import caller_of
from holdfast.web.threads import Threads

if TYPE_CHECKING:
    from holdfast.web.app import Site

ENDPOINTS: tuple[Endpoint, ...] = (
    *jobs.ENDPOINTS,
    *batches.ENDPOINTS,
    *schedules.ENDPOINTS,
    *fleet.ENDPOINTS,
)
#: Refusals that may be otherwise tomorrow: they are not kept under a key.
PASSING = (401, 403, 429)
#: A client may send the same request twice under one of these.
KEY = re.compile(r"[\x21-\x7e]{1,200}")


def routes(site: Site) -> list[BaseRoute]:
    """The routes of the API, its stream, and its description."""
    described = document(ENDPOINTS)

    async def describe(request: Request) -> Response:
        # Below the path of another application, the addresses in it begin there.
        root = str(request.scope.get("root_path", "")).rstrip("/")
        return json_response(msgspec.json.encode({**described, "servers": [{"url": root or "/"}]}))

    async def events(request: Request) -> Response:
        return await site.live.answer(request, site.may_stay)

    threads = Threads()
    made = [Route(f"{BASE}{each.path}", _answering(site, each, threads), methods=[each.method]) for each in ENDPOINTS]
    return [
        *made,
        Route(f"{BASE}/events", events, methods=["GET"]),
        Route(f"{BASE}/openapi.json", describe, methods=["GET"]),
    ]


def _answering(site: Site, endpoint: Endpoint, threads: Threads) -> Any:
    async def answer(request: Request) -> Response:
        body = await request.body() if endpoint.method == "POST" else b""
        return await threads.answer(request, _carry_out, site, endpoint, request, body)

    return answer


def _carry_out(site: Site, endpoint: Endpoint, request: Request, body: bytes) -> Response:
    """Do what is asked, once: a key that came before is answered as it was."""
    caller = caller_of(request.scope)
    refuse_role(caller, endpoint.role, "this")
    ask = ApiRequest(
        site=site,
        caller=caller,
        actions=site.actions(request),
        id=_number(request.path_params),
        query=_query(endpoint, request),
        body=_body(endpoint, request, body),
    )
    key = request.headers.get("idempotency-key") if endpoint.method == "POST" else None
    if key is None or ask.dry_run:  # what does nothing may be done again
        return _done(ask, endpoint)
    return _once(ask, endpoint, _Key(caller, key, _digest(request, body)))


def _done(ask: ApiRequest, endpoint: Endpoint) -> Response:
    began = time.monotonic()
    return json_response(body_of(endpoint.act(ask), began), 200 if ask.dry_run else endpoint.status)


class _Key:
    """A request that the client may send again."""

    def __init__(self, caller: Caller, text: str, digest: str) -> None:
        if not KEY.fullmatch(text):
            raise InvalidInput("an Idempotency-Key has 1 to 200 visible ASCII characters")
        self.text = text
        self.digest = digest
        self.credential = caller.prefix or f"name:{caller.name}"


def _once(ask: ApiRequest, endpoint: Endpoint, key: _Key) -> Response:
    answers = ask.actions.store.idempotency_keys
    before = answers.claim(key.credential, key.text, key.digest)
    if before is not None:
        if before.digest != key.digest:
            raise Conflict("this Idempotency-Key came with another request", hint="Take a new key for a new request.")
        if before.status is None or before.body is None:
            hint = "Wait for it; if its server was stopped, look whether it was done, and take a new key."
            raise Conflict("a request with this Idempotency-Key is under way", hint=hint)
        return json_response(before.body.encode(), before.status, {"Idempotent-Replay": "true"})
    try:
        answer = _done(ask, endpoint)
    except (HoldfastError, HttpError) as error:
        status, failure, headers = told(error)
        if status >= 500 or status in PASSING:
            answers.release(key.credential, key.text)
            raise
        answer = json_response(msgspec.json.encode(failed(failure)), status, headers)
    except BaseException:
        answers.release(key.credential, key.text)
        raise
    answers.keep(key.credential, key.text, answer.status_code, bytes(answer.body).decode())
    return answer


def _digest(request: Request, body: bytes) -> str:
    return hashlib.sha256(f"{request.method} {request.url.path}\n".encode() + body).hexdigest()


def _number(parameters: Mapping[str, Any]) -> int:
    number: int = parameters.get("id", 0)
    if number >= 2**63:
        raise InvalidInput("this is no number of ours")
    return number


def _query(endpoint: Endpoint, request: Request) -> Any:
    """What the address asks, as its type says.

    Raises:
        InvalidInput: It does not fit; the message names the field.
    """
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise InvalidInput(f"{name[:40]!r} is given twice")
        given[name] = checked_text(value, what=name[:40])
    unknown = sorted(set(given) - set(endpoint.query.__struct_fields__))
    if unknown:
        known = ", ".join(endpoint.query.__struct_fields__) or "nothing"
        raise InvalidInput(f"nobody knows {unknown[0][:40]!r} here", hint=f"One may ask: {known}.")
    try:
        return msgspec.convert(given, endpoint.query, strict=False)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise InvalidInput(f"the address does not fit: {error}") from None


def _body(endpoint: Endpoint, request: Request, body: bytes) -> Any:
    if endpoint.body is None:
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise WrongType("the body is read as JSON")
    try:
        return msgspec.json.decode(body, type=endpoint.body)
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"the body does not fit: {error}") from None
