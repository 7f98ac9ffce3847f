"""What goes wrong on the way, and the status that says so."""

from __future__ import annotations

from typing import ClassVar

from starlette.exceptions import HTTPException

from holdfast.errors import (
    BatchPaused,
    ConfigurationError,
    Conflict,
    Drift,
    HoldfastError,
    InvalidInput,
    JobPruned,
    LeaseLost,
    NotFound,
    PayloadTooLarge,
    Refused,
    StoreUnavailable,
    WaitTimeout,
)
from holdfast.output.envelope import Failure, failure_of

#: Errors of the store and of people, the most special first.
STATUSES: tuple[tuple[type[HoldfastError], int], ...] = (
    (PayloadTooLarge, 413),
    (InvalidInput, 400),
    (JobPruned, 410),
    (NotFound, 404),
    (Refused, 403),
    (ConfigurationError, 500),
    (StoreUnavailable, 503),
    (Conflict, 409),
    (BatchPaused, 409),
    (Drift, 409),
    (LeaseLost, 409),
    (WaitTimeout, 504),
)

#: What stands above the page that says so.
TITLES = {
    400: "That cannot be done",
    401: "Who are you?",
    403: "That is not allowed",
    404: "Not found",
    405: "Not in this way",
    409: "Something is in the way",
    410: "No longer there",
    413: "Too large",
    421: "Not here",
    429: "Too often",
    503: "The store does not answer",
}


class HttpError(Exception):
    """A request that is not carried out."""

    status: ClassVar[int] = 400
    code: ClassVar[str] = "E_BAD_REQUEST"
    hint: ClassVar[str] = ""
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.headers = headers or {}
        self.said = self.hint if hint is None else hint

    @property
    def failure(self) -> Failure:
        return Failure(code=self.code, message=self.message, hint=self.said, retryable=self.retryable)


class Unauthenticated(HttpError):
    """Nobody is known to ask."""

    status, code = 401, "E_UNAUTHENTICATED"
    hint = "Send Authorization: Bearer TOKEN; holdfast token add makes one."


class Forbidden(HttpError):
    """This role may not do that, or the request comes from another site."""

    status, code = 403, "E_FORBIDDEN"


class NoSuchPage(HttpError):
    """There is nothing at this address."""

    status, code = 404, "E_NOT_FOUND"


class WrongMethod(HttpError):
    """This address is asked in another way."""

    status, code = 405, "E_METHOD"


class TooLarge(HttpError):
    """The request takes too much room."""

    status, code = 413, "E_TOO_LARGE"


class WrongType(HttpError):
    """The body is of another type than is read here."""

    status, code = 415, "E_MEDIA_TYPE"
    hint = "Send JSON with Content-Type: application/json."


class WrongHost(HttpError):
    """The request asks for a name that this server does not answer to."""

    status, code = 421, "E_WRONG_HOST"
    hint = "Name it in the setting web_hosts, or in asgi(app, hosts=[…])."


class SlowDown(HttpError):
    """Too many wrong tokens, or too many streams, from one place."""

    status, code = 429, "E_SLOW_DOWN"
    hint = "Try again in a while."
    retryable = True


class Broken(HttpError):
    """A defect of ours. The traceback is in the server's log, or stands above the error of a command."""

    status, code = 500, "E_INTERNAL"


def status_of(error: HoldfastError) -> int:
    """The HTTP status of an error."""
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


def title_of(status: int) -> str:
    """What went wrong, for people."""
    return TITLES.get(status, "It did not work")


def told(error: Exception) -> tuple[int, Failure, dict[str, str]]:
    """Status, failure and headers of whatever was raised."""
    match error:
        case HttpError():
            return error.status, error.failure, error.headers
        case HTTPException(status_code=404):
            return told(NoSuchPage("there is nothing at this address"))
        case HTTPException(status_code=405):
            return told(WrongMethod("this address is asked in another way", headers=dict(error.headers or {})))
        case HoldfastError():
            status = status_of(error)
            headers = {"Retry-After": "2"} if status == 503 else {}
            return status, failure_of(error), headers
        case _:
            return 500, Broken("this is a defect of Holdfast", hint="The server's log says more.").failure, {}
