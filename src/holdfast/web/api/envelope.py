"""Answers for programs: the envelope of the command line, over HTTP."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.output.envelope import Envelope, Failure, Meta


def failed(failure: Failure) -> Any:
    """The envelope of a request that was not carried out."""
    return msgspec.to_builtins(Envelope(status="error", error=failure, meta=Meta(0)))


def body_of(data: Any, began: float) -> bytes:
    """The envelope of an answer, as JSON."""
    spent = Meta(int((time.monotonic() - began) * 1000))
    return msgspec.json.encode(Envelope(status="success", data=data, meta=spent))


def json_response(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")
