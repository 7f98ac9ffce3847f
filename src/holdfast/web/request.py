"""The request context: the caller, the store and the actions of one HTTP request, and the page that answers it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlencode

from anyio import CapacityLimiter, to_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from msgspec import structs
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Scope

from holdfast import __version__
from holdfast.admin.actions.actions import Actions
from holdfast.admin.actions.table import actions_on
from holdfast.admin.views.fleet import stop_view, successor_of
from holdfast.domain.access.audit import Via
from holdfast.domain.access.roles import Role
from holdfast.domain.jobs.selector import format_values
from holdfast.domain.names import quote_argument
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.web.pages import charts
from holdfast.web.pages import format as formats
from holdfast.web.security.authorization import require_inbox, require_role

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.web.app import Site
    from holdfast.web.security.authentication import Caller

WEB_FOLDER = Path(__file__).parent

#: The navigation: name, path, title, and the key that opens the screen after g.
SCREENS = (
    ("overview", "", "Overview", "o"),
    ("jobs", "jobs", "Jobs", "j"),
    ("batches", "batches", "Batches", "b"),
    ("inboxes", "inboxes", "Inboxes", "i"),
    ("schedules", "schedules", "Schedules", "s"),
    ("queues", "queues", "Queues", "q"),
    ("workers", "workers", "Workers", "w"),
    ("errors", "errors", "Errors", "e"),
    ("dependencies", "dependencies", "Dependencies", "d"),
    ("audit_log", "audit-log", "Audit log", "a"),
    ("doctor", "doctor", "Doctor", "h"),
)
#: Actions at a time; others wait.
MAX_ACTIONS = 20
#: Carries the result of an action to the page that follows it.
NOTICE_COOKIE = "holdfast_said"
MAX_NOTICE_LENGTH = 600
THEME_COOKIE = "holdfast_theme"
#: Set by a page that reloads itself.
LIVE_HEADER = "x-holdfast-live"
MAX_FIELDS = 1500


@cache
def environment() -> Environment:
    loaded = Environment(
        loader=FileSystemLoader(WEB_FOLDER / "templates"),
        autoescape=True,
        finalize=formats.finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    texts = ("verbatim", "first_line", "sentence", "pretty", "compact", "ansi")
    values = ("number", "counted", "size", "duration", "age", "timestamp", "clock", "state")
    drawings = ("bar", "spark", "strip", "stretch_bar")
    loaded.filters.update({name: getattr(formats, name) for name in (*texts, *values)})
    loaded.globals.update({name: getattr(charts, name) for name in drawings})
    loaded.globals.update(
        actions_on=actions_on, screens=SCREENS, quoted=format_values, argument=quote_argument, version=__version__
    )
    return loaded


def render(template: str, values: dict[str, Any]) -> str:
    return environment().get_template(template).render(values)


def build_url(base: str, path: str, query: dict[str, Any]) -> str:
    """The address of a page. Names belong in the query, where any character is allowed."""
    parameters = {name: value for name, value in query.items() if value not in (None, "")}
    suffix = f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""
    return f"{base}/{path.lstrip('/')}{suffix}"


class Threads:
    def __init__(self) -> None:
        self._actions: CapacityLimiter | None = None

    async def answer(self, request: HttpRequest, answer: Callable[..., Response], *args: Any) -> Response:
        """Call *answer* in a thread. Everything but GET and HEAD may wait for a writer."""
        if request.method in ("GET", "HEAD"):
            return await run_in_threadpool(answer, *args)
        if self._actions is None:  # bound to the running event loop
            self._actions = CapacityLimiter(MAX_ACTIONS)
        return await to_thread.run_sync(partial(answer, *args), limiter=self._actions)


class Request:
    """One request of a page or of the API."""

    def __init__(self, site: Site, http: HttpRequest, body: bytes = b"") -> None:
        self.site = site
        self.http = http
        self.caller = caller_of(http.scope)
        self.is_api = path_of(http.scope).startswith("/api/")
        #: An open page fetches itself again. Viewers share the answer: it must hold nothing of the one who came first.
        self.is_reload = http.method == "GET" and LIVE_HEADER in http.headers and not self.is_api
        if self.is_reload:
            self.caller = structs.replace(self.caller, name="", prefix=None, session="")
        self.base: str = http.scope.get("root_path", "").rstrip("/")
        self.now = datetime.now(UTC)
        self._form = {} if self.is_api else _parse_form(body)
        self._transaction: Store | None = None

    def within(self, transaction: Store) -> Request:
        """The same request; its reads and its actions use a store in one transaction."""
        request = copy(self)
        request._transaction = transaction  # noqa: SLF001 - a copy of this one
        vars(request).pop("actions", None)
        return request

    @property
    def store(self) -> Store:
        return self._transaction or self.site.store

    @cached_property
    def actions(self) -> Actions:
        """The actions of the caller, on the application's own store: reads have another one."""
        app, via = self.site.app, Via.API if self.is_api else Via.WEB
        store, logs = self._transaction or app.store, self.site.logs
        return Actions(store, actor=self.caller.name, via=via, logs=logs, providers=app.providers)

    def may(self, role: Role | str) -> bool:
        return self.caller.role.may(Role(role))

    def require(self, role: Role, subject: str = "this") -> None:
        """Refuse a caller whose role is not enough for *subject*."""
        require_role(self.caller, role, subject, is_api=self.is_api)

    def require_inbox(self, inbox: str) -> None:
        """Refuse a caller whose token is limited to another inbox."""
        require_inbox(self.caller, inbox)

    @property
    def id(self) -> int:
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

    def url(self, path: str, /, **query: Any) -> str:
        return build_url(self.base, path, query)

    def redirect(self, path: str, /, **query: Any) -> Response:
        return RedirectResponse(self.url(path, **query), 303)

    def done(self, notice: str, path: str, /, **query: Any) -> Response:
        """Redirect to a page that shows the result of an action, once."""
        answer = self.redirect(path, **query)
        text = quote(notice[:MAX_NOTICE_LENGTH].encode("utf-8", "replace"), safe="")
        answer.set_cookie(NOTICE_COOKIE, text, max_age=60, path=self.base or "/", httponly=True, samesite="strict")
        return answer

    def page(self, template: str, screen: str | None = None, *, status: int = 200, **values: Any) -> Response:
        """Render a page. *screen* is the entry of the navigation that it belongs to, if not that of its template."""
        # A page that reloads itself must not take the notice from the page that follows an action.
        notice = "" if self.is_reload else unquote(self.http.cookies.get(NOTICE_COOKIE, ""))[:MAX_NOTICE_LENGTH]
        theme = self.http.cookies.get(THEME_COOKIE, "")
        context: dict[str, Any] = {
            "caller": self.caller,
            "is_reload": self.is_reload,
            "to": self.url,
            "may": self.may,
            "base": self.base,
            "location": self.site.location,
            "token_field": self.token_field,
            "screen": template.removesuffix(".html") if screen is None else screen,
            "notice": notice,
            "theme": theme if theme in ("light", "dark") else "",
            "now": self.now,
            "stopped": values["stopped"] if "stopped" in values else self._banner(stop_view),
            "successor": self._banner(successor_of),
            "cli": "",
            "self_url": "",
        }
        answer = HTMLResponse(render(template, {**context, **values}), status)
        if notice:
            answer.delete_cookie(NOTICE_COOKIE, path=self.base or "/")
        return answer

    def _banner(self, read: Callable[[Store], Any]) -> Any:
        """What a banner of every page shows. A page about a failing store has none."""
        with suppress(HoldfastError):
            return read(self.store)
        return None

    def confirm(self, screen: str, **values: Any) -> Response:
        """Render the page that asks for confirmation: its form sends the *hidden* fields to the same address again."""
        action = self.url(path_of(self.http.scope), **self.http.query_params)
        defaults = {
            "ids": [],
            "note": False,
            "preview": "",
            "button": values["title"].removesuffix("?"),
            "action": action,
        }
        return self.page("confirm.html", screen, **{**defaults, **values})

    def token_field(self) -> Markup:
        """The CSRF token as a field of a form. The script of an open page fills it in after a reload."""
        token = "" if self.is_reload else self.site.form_token(self.caller)
        return Markup('<input type="hidden" name="form_token" value="{}">').format(token)


def _parse_form(body: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        raise InvalidInput("the form cannot be read", hint="Go back, and send it again.") from None


def path_of(scope: Scope) -> str:
    """The path below the one at which the site is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] or "/" if root and path.startswith(root) else path


def caller_of(scope: Scope) -> Caller:
    caller: Caller = scope["state"]["caller"]
    return caller


def address_of(connection: HTTPConnection) -> str | None:
    return None if connection.client is None else connection.client.host
