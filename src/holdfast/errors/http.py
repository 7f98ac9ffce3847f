"""HTTP statuses, and the errors that only a request over HTTP can cause.

``HttpError`` is not a ``HoldfastError``: pages catch the latter to show them in place.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple


class HttpStatus(NamedTuple):
    """The texts of a status: the title of its page, and its description in OpenAPI."""

    title: str = "Request failed"
    description: str = ""


HTTP_STATUSES = {
    400: HttpStatus("Invalid request", "The request is invalid."),
    401: HttpStatus("Not signed in", "The request needs a session or a token."),
    403: HttpStatus("Not allowed", "The role is not sufficient, or the request comes from another site."),
    404: HttpStatus("Not found", "The resource does not exist."),
    405: HttpStatus("Wrong method", "The address needs another method."),
    408: HttpStatus("Too slow", "The request did not arrive in time."),
    409: HttpStatus("Conflict", "The state of the object does not allow it."),
    410: HttpStatus("Deleted", "Retention has deleted the object."),
    413: HttpStatus("Too large", "The request is too large."),
    415: HttpStatus(description="The body is not JSON."),
    421: HttpStatus("Wrong host name", "The server does not accept this host name."),
    429: HttpStatus("Too many requests", "Too many wrong tokens, or too many streams of one caller."),
    503: HttpStatus("The store does not answer", "The store does not answer."),
}


def title_of(status: int) -> str:
    """The title of the page that reports a status."""
    return HTTP_STATUSES.get(status, HttpStatus()).title


class HttpError(Exception):
    """A request that is not carried out."""

    code: ClassVar[str] = "E_BAD_REQUEST"
    http_status: ClassVar[int] = 400
    retryable: ClassVar[bool] = False
    hint: str = ""

    def __init__(self, message: str, *, hint: str | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.headers = headers or {}
        self.context: dict[str, Any] = {}
        if hint is not None:
            self.hint = hint


class Unauthenticated(HttpError):
    """The request has no valid session or token."""

    code, http_status = "E_UNAUTHENTICATED", 401
    hint = "Send Authorization: Bearer TOKEN; create one with holdfast token add. For a browser: holdfast token link."


class Forbidden(HttpError):
    """This role may not do that, or the request comes from another site."""

    code, http_status = "E_FORBIDDEN", 403


class NoSuchPage(HttpError):
    """There is nothing at this address."""

    code, http_status = "E_NOT_FOUND", 404


class WrongMethod(HttpError):
    """The address needs another HTTP method."""

    code, http_status = "E_METHOD", 405


class TooLarge(HttpError):
    """The request is too large."""

    code, http_status = "E_TOO_LARGE", 413


class WrongType(HttpError):
    """The body has a content type that the server does not read."""

    code, http_status = "E_MEDIA_TYPE", 415
    hint = "Send JSON with Content-Type: application/json."


class WrongHost(HttpError):
    """The server does not accept the host name of the request."""

    code, http_status = "E_WRONG_HOST", 421
    hint = "Add it to the setting web_hosts, or to asgi(app, hosts=[…])."


class SlowDown(HttpError):
    """Too many wrong tokens, or too many streams of one caller."""

    code, http_status = "E_SLOW_DOWN", 429
    hint = "Try again in a while."
    retryable = True


class Busy(HttpError):
    """The server, or this caller, has too many requests at a time."""

    code, http_status = "E_BUSY", 503
    hint = "Try again in a while."
    retryable = True


class TooSlow(HttpError):
    """The request did not arrive in time."""

    code, http_status = "E_TOO_SLOW", 408
    hint = "Send it again."
    retryable = True


class Unavailable(HttpError):
    """The store does not answer, and the caller is not known yet. See the server's log."""

    code, http_status = "E_UNAVAILABLE", 503
    hint = "Try again in a while."
    retryable = True


class InternalError(HttpError):
    """A defect of Holdfast. The traceback is in the server's log, or above the error of a command."""

    code, http_status = "E_INTERNAL", 500
