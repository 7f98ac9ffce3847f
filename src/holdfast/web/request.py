"""The request context: the caller, the store and the actions of one HTTP request, and the pages that answer it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote

from markupsafe import Markup
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast.admin.actions.actions import Actions
from holdfast.domain.access.roles import Role, Via
from holdfast.errors import InvalidInput, Refused
from holdfast.errors.http import Forbidden
from holdfast.web.pages.templates import build_url, render
from holdfast.web.security.authentication import caller_of, path_of

if TYPE_CHECKING:
    from holdfast.admin.views.masking import Masks
    from holdfast.store import Store
    from holdfast.web.app import Site

#: Carries the result of an action to the page that follows it.
NOTICE_COOKIE = "holdfast_said"
MAX_NOTICE_LENGTH = 600
THEME_COOKIE = "holdfast_theme"
#: Set by a page that reloads itself.
LIVE_HEADER = "x-holdfast-live"
MAX_FIELDS = 1500


class Request:
    """One request of a page or of the API."""

    def __init__(self, site: Site, http: HttpRequest, body: bytes = b"") -> None:
        self.site = site
        self.http = http
        self.caller = caller_of(http.scope)
        self.is_api = path_of(http.scope).startswith("/api/")
        self.base: str = http.scope.get("root_path", "").rstrip("/")
        self.now = datetime.now(UTC)
        self._form = {} if self.is_api else _parse_form(body)

    @property
    def store(self) -> Store:
        return self.site.store

    @property
    def masks(self) -> Masks:
        return self.site.masks

    @cached_property
    def actions(self) -> Actions:
        return self.site.actions(self.caller, Via.API if self.is_api else Via.WEB)

    def may(self, role: Role | str) -> bool:
        return self.caller.role.may(Role(role))

    def require(self, role: Role, subject: str = "this") -> None:
        """Refuse a caller whose role is not enough for *subject*."""
        if self.may(role):
            return
        text = f"{subject} needs the role {role}, and {self.caller.name} is {self.caller.role}"
        if self.is_api:
            raise Forbidden(text, hint="Ask somebody who may, or use another token.")
        raise Refused(text, hint="Ask somebody who may, or sign in with another token.")

    # -- parameters of pages ---------------------------------------------------------------

    @property
    def id(self) -> int:
        """The id in the path."""
        number: int = self.http.path_params["id"]
        return number

    def query(self, name: str) -> str:
        """A parameter of the address; empty if it is missing."""
        return self.http.query_params.get(name, "")

    def query_number(self, name: str) -> int | None:
        """A parameter of the address as a number; None if it is missing or not a number."""
        text = self.query(name)
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None

    def field(self, name: str) -> str:
        """A field of the form; empty if it is missing."""
        values = self._form.get(name, [])
        return values[0].strip() if values else ""

    def fields(self, name: str) -> list[str]:
        return self._form.get(name, [])

    def field_number(self, name: str) -> int | None:
        """A field of the form as a number; None if it is empty. Anything else is refused."""
        text = self.field(name)
        if not text:
            return None
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 11):
            raise InvalidInput(f"{name} is a whole number, not {text[:40]!r}")
        return int(text)

    # -- answers of pages ------------------------------------------------------------------

    def url(self, path: str, /, **query: Any) -> str:
        """The address of a page of this site."""
        return build_url(self.base, path, query)

    def redirect(self, path: str, /, **query: Any) -> Response:
        return RedirectResponse(self.url(path, **query), 303)

    def done(self, notice: str, path: str, /, **query: Any) -> Response:
        """Redirect to a page that shows the result of an action, once."""
        answer = self.redirect(path, **query)
        text = quote(notice[:MAX_NOTICE_LENGTH].encode("utf-8", "replace"), safe="")
        answer.set_cookie(NOTICE_COOKIE, text, max_age=60, path=self.base or "/", httponly=True, samesite="strict")
        return answer

    def page(self, template: str, screen: str, status: int = 200, **values: Any) -> Response:
        """Render a page. *screen* is the entry of the navigation that it belongs to."""
        # A page that reloads itself must not take the notice from the page that follows an action.
        reload = LIVE_HEADER in self.http.headers
        notice = "" if reload else unquote(self.http.cookies.get(NOTICE_COOKIE, ""))[:MAX_NOTICE_LENGTH]
        theme = self.http.cookies.get(THEME_COOKIE, "")
        context: dict[str, Any] = {
            "caller": self.caller,
            "to": self.url,
            "may": self.may,
            "base": self.base,
            "location": self.site.location,
            "token_field": self.token_field,
            "screen": screen,
            "notice": notice,
            "theme": theme if theme in ("light", "dark") else "",
            "now": self.now,
            "cli": "",
            "self_url": "",
        }
        answer = HTMLResponse(render(template, {**context, **values}), status)
        if notice:
            answer.delete_cookie(NOTICE_COOKIE, path=self.base or "/")
        return answer

    def confirm(self, screen: str, **values: Any) -> Response:
        """Render the page that asks for confirmation: its form sends the *hidden* fields to *action* again."""
        return self.page("confirm.html", screen, **{"ids": [], "note": False, **values})

    def token_field(self) -> Markup:
        """The CSRF token as a field of a form."""
        token = self.site.form_token(self.caller)
        return Markup('<input type="hidden" name="form_token" value="{}">').format(token)


def _parse_form(body: bytes) -> dict[str, list[str]]:
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        raise InvalidInput("the form cannot be read", hint="Go back, and send it again.") from None
    form: dict[str, list[str]] = {}
    for name, value in pairs:
        form.setdefault(name, []).append(value)
    return form
