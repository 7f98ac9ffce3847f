"""The HTTP answer to an exception."""

from __future__ import annotations

from starlette.exceptions import HTTPException

from holdfast.errors import HoldfastError
from holdfast.errors.http import HttpError, InternalError, NoSuchPage, WrongMethod
from holdfast.output.envelope import Failure, failure_of


def error_answer(error: Exception) -> tuple[int, Failure, dict[str, str]]:
    """Status, failure and headers for any exception."""
    match error:
        case HttpError():
            return error.http_status, failure_of(error), error.headers
        case HTTPException(status_code=404):
            return error_answer(NoSuchPage("there is nothing at this address"))
        case HTTPException(status_code=405):
            return error_answer(WrongMethod("this address is asked in another way", headers=dict(error.headers or {})))
        case HoldfastError():
            headers = {"Retry-After": "2"} if error.http_status == 503 else {}
            return error.http_status, failure_of(error), headers
        case _:
            return error_answer(InternalError("this is a defect of Holdfast", hint="The server's log says more."))
