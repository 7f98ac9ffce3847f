"""The envelope around all JSON answers."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from holdfast.domain.access.masking import mask_value
from holdfast.errors import HoldfastError
from holdfast.errors.http import HttpError

SCHEMA_VERSION = 1


class Failure(Struct, frozen=True, kw_only=True):
    """An error, and what to do next."""

    code: str
    message: str
    hint: str = ""
    retryable: bool = False
    #: Seconds to wait before the same command may succeed.
    retry_after_s: float | None = None
    #: The command to run next.
    next: str | None = None
    context: dict[str, Any] = {}


def failure_of(error: HoldfastError | HttpError) -> Failure:
    """An error as JSON answers show it, without secrets in its context."""
    context = {name: mask_value(json_value(value)) for name, value in error.context.items()}
    return Failure(code=error.code, message=error.message, hint=error.hint, retryable=error.retryable, context=context)


def usage_failure(message: str, path: str) -> Failure:
    """A command line that the command *path* cannot read."""
    return Failure(code="E_USAGE", message=message, hint=f"See {path} --help.", next=f"{path} --help")


def json_value(value: Any) -> Any:
    """A value of an error's context: numbers and lists stay what they are, other objects become strings."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case dict():
            return {str(name): json_value(each) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [json_value(each) for each in value]
        case _:
            return str(value)


class Meta(Struct, frozen=True):
    """About the answer itself."""

    duration_ms: int


class Envelope(Struct, frozen=True, kw_only=True):
    """Every command prints one of these with ``-o json``."""

    status: Literal["success", "partial_failure", "error"]
    schema_version: int = SCHEMA_VERSION
    data: Any = None
    error: Failure | None = None
    meta: Meta


class NdjsonEnd(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last line of ``-o ndjson``, under ``_meta``; *lines* counts the lines before it."""

    status: Literal["success", "partial_failure", "error"]
    lines: int
    error: Failure | None = None
    summary: Any = None
