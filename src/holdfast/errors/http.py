"""HTTP statuses, and the errors that only a request over HTTP can cause.

``HttpError`` is not a ``HoldfastError``: pages catch the latter to show them in place.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple


class HttpStatus(NamedTuple):
    """The texts of a status: the title of its page, and its description in OpenAPI."""

    title: str = "It did not work"
    description: str = ""


HTTP_STATUSES = {
    400: HttpStatus("That cannot be done", "What was asked makes no sense."),
    401: HttpStatus("Who are you?", "A token is needed."),
    403: HttpStatus("That is not allowed", "The role is not enough, or the request comes from another site."),
    404: HttpStatus("Not found", "There is no such thing."),
    405: HttpStatus("Not in this way", "This address is asked in another way."),
    408: HttpStatus("Too slow", "The request did not arrive in time."),
    409: HttpStatus("Something is in the way", "Something is in the way."),
    410: HttpStatus("No longer there", "It was there, and is forgotten."),
    413: HttpStatus("Too large", "It is too large."),
    415: HttpStatus(description="The body is no JSON."),
    421: HttpStatus("Not here", "The server does not answer to this name."),
    429: HttpStatus("Too often", "Too many wrong tokens."),
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
    """Nobody is known to ask."""

    code, http_status = "E_UNAUTHENTICATED", 401
    hint = "Send Authorization: Bearer TOKEN; holdfast token add makes one. A browser: holdfast token link."


class Forbidden(HttpError):
    """This role may not do that, or the request comes from another site."""

    code, http_status = "E_FORBIDDEN", 403


class NoSuchPage(HttpError):
    """There is nothing at this address."""

    code, http_status = "E_NOT_FOUND", 404


class WrongMethod(HttpError):
    """This address is asked in another way."""

    code, http_status = "E_METHOD", 405


class TooLarge(HttpError):
    """The request takes too much room."""

    code, http_status = "E_TOO_LARGE", 413


class WrongType(HttpError):
    """The body is of another type than is read here."""

    code, http_status = "E_MEDIA_TYPE", 415
    hint = "Send JSON with Content-Type: application/json."


class WrongHost(HttpError):
    """The request asks for a name that this server does not answer to."""

    code, http_status = "E_WRONG_HOST", 421
    hint = "Name it in the setting web_hosts, or in asgi(app, hosts=[…])."


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
    """The store does not answer, and the caller is not known yet. The server's log says more."""

    code, http_status = "E_UNAVAILABLE", 503
    hint = "Try again in a while."
    retryable = True


class InternalError(HttpError):
    """A defect of ours. The traceback is in the server's log, or stands above the error of a command."""

    code, http_status = "E_INTERNAL", 500
