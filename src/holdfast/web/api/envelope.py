"""The envelope of every answer of the API, the same as that of the command line."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.output.envelope import Envelope, Failure, Meta


def error_envelope(failure: Failure) -> Any:
    return msgspec.to_builtins(Envelope(status="error", error=failure, meta=Meta(0)))


def encode_success(data: Any, began: float) -> bytes:
    """The envelope of an answer as JSON; *began* is the start of the request on the monotonic clock."""
    spent = Meta(int((time.monotonic() - began) * 1000))
    return msgspec.json.encode(Envelope(status="success", data=data, meta=spent))


def json_response(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")
