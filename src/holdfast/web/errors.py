"""Answers to requests that were refused or failed: status, envelope or page, redirect to the login page."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Scope

from holdfast.errors import HoldfastError
from holdfast.errors.http import HttpError, InternalError, NoSuchPage, WrongMethod, title_of
from holdfast.output.envelope import Envelope, Failure, Meta, failure_of
from holdfast.web.request import path_of, render

#: Paths that do not redirect to the login page: a missing token is an error there.
NO_LOGIN_PATHS = ("/metrics", "/live")


def error_answer(error: Exception) -> tuple[int, Failure, dict[str, str]]:
    """Status, failure and headers for any exception."""
    match error:
        case HttpError():
            return error.http_status, failure_of(error), error.headers
        case HTTPException(status_code=404):
            return error_answer(NoSuchPage("there is nothing at this address"))
        case HTTPException(status_code=405):
            return error_answer(WrongMethod("the address needs another method", headers=dict(error.headers or {})))
        case HoldfastError():
            headers = {"Retry-After": "2"} if error.http_status == 503 else {}
            return error.http_status, failure_of(error), headers
        case _:
            return error_answer(InternalError("this is a defect of Holdfast", hint="See the server's log."))


def error_envelope(failure: Failure) -> Any:
    return msgspec.to_builtins(Envelope(status="error", error=failure, meta=Meta(0)))


def error_response(scope: Scope, error: Exception) -> ASGIApp:
    """An envelope for programs, a page or a redirect to the login page for people."""
    status, failure, headers = error_answer(error)
    path, root = path_of(scope), str(scope.get("root_path", ""))
    if path.startswith("/api/"):
        return JSONResponse(error_envelope(failure), status, headers)
    if status == 401 and scope["method"] == "GET" and path not in NO_LOGIN_PATHS:
        return RedirectResponse(_login_url(root, path, scope["query_string"]), 303)
    values = {"message": failure.message, "hint": failure.hint, "code": failure.code}
    page = render("bare.html", {"base": root, "title": title_of(status), **values})
    return HTMLResponse(page, status, headers)


def _login_url(root: str, path: str, query: bytes) -> str:
    """The address of the login page, which leads back to *path*."""
    target = path + (f"?{query.decode('latin-1')}" if query else "")
    return f"{root}/login?{urlencode({'next': target}, quote_via=quote)}"
