"""A visit: what one person asks of one page, who they are, and how they are answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote, unquote

from markupsafe import Markup
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast.admin.actions.actions import Actions
from holdfast.admin.views.masking import Masks
from holdfast.domain.access.roles import Role
from holdfast.domain.health_check import HealthCheck
from holdfast.errors import InvalidInput, Refused
from holdfast.store import Store
from holdfast.web.pages.templates import address, rendered

#: The cookie that carries what was done to the page that follows; and the one that remembers light or dark.
SAID, THEME = "holdfast_said", "holdfast_theme"
LONGEST_SAID = 600
#: The header of a page that asks for itself again.
LIVE = "x-holdfast-live"
#: Fields that a form may have.
FIELDS = 1500


class SignedInUser(Struct, frozen=True):
    """Who visits. *form_token* goes with each of their forms; *can_leave*: they have signed in, and can sign out."""

    name: str
    role: Role
    form_token: str = ""
    can_leave: bool = False


class PageSite(Protocol):
    """What pages need of the server that they are part of."""

    #: Where the logs of programs are on this host.
    logs: Path
    #: What is said of the store: its URL without its password.
    place: str

    @property
    def store(self) -> Store: ...
    @property
    def masks(self) -> Masks: ...

    def who(self, request: Request) -> SignedInUser:
        """Who asks; whoever may not come in was turned away before."""
        ...

    def may_stay(self, request: Request) -> bool:
        """Whether who opened a page may still look at it."""
        ...

    def actions(self, request: Request) -> Actions:
        """Where they act."""
        ...

    def examined(self) -> tuple[list[HealthCheck], datetime]:
        """What the doctor found, and when: not for each who asks."""
        ...


class PageRequest:
    """One request of a page."""

    def __init__(self, house: PageSite, request: Request, body: bytes = b"") -> None:
        self.house = house
        self.request = request
        self.base: str = request.scope.get("root_path", "").rstrip("/")
        self.now = datetime.now(UTC)
        self._form = _form(body)

    # -- what is asked ---------------------------------------------------------------------

    @property
    def id(self) -> int:
        """The number in the path."""
        number: int = self.request.path_params["id"]
        return number

    def asked(self, name: str) -> str:
        """What the address says under a name."""
        return self.request.query_params.get(name, "")

    def asked_number(self, name: str) -> int | None:
        """A number that the address says; None: it says none."""
        text = self.asked(name)
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None

    def given(self, name: str) -> str:
        """What the form says under a name."""
        values = self._form.get(name, [])
        return values[0].strip() if values else ""

    def all_given(self, name: str) -> list[str]:
        """All that the form says under a name."""
        return self._form.get(name, [])

    def number(self, name: str) -> int | None:
        """A whole number that the form gives; None: it gives none.

        Raises:
            InvalidInput: It gives something else.
        """
        text = self.given(name)
        if not text:
            return None
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 11):
            raise InvalidInput(f"{name} is a whole number, not {text[:40]!r}")
        return int(text)

    # -- who asks, and of what ---------------------------------------------------------------

    @cached_property
    def who(self) -> SignedInUser:
        return self.house.who(self.request)

    @cached_property
    def actions(self) -> Actions:
        return self.house.actions(self.request)

    @property
    def store(self) -> Store:
        return self.house.store

    @property
    def masks(self) -> Masks:
        return self.house.masks

    def may(self, role: Role | str) -> bool:
        """Whether they may do what needs this role."""
        return self.who.role.may(Role(role))

    def need(self, role: Role, what: str = "this") -> None:
        """Go on only if they may; *what* it is that needs the role.

        Raises:
            Refused: Their role is not enough.
        """
        if not self.may(role):
            hint = "Ask somebody who may, or sign in with another token."
            raise Refused(f"{what} needs the role {role}, and {self.who.name} is {self.who.role}", hint=hint)

    # -- answers -----------------------------------------------------------------------------

    def to(self, path: str, /, **query: Any) -> str:
        """The address of a page of this site."""
        return address(self.base, path, query)

    def go(self, path: str, /, **query: Any) -> Response:
        """Lead to another page."""
        return RedirectResponse(self.to(path, **query), 303)

    def page(self, template: str, screen: str, status: int = 200, **values: Any) -> Response:
        """A page, with what was just done if it follows an act."""
        # A page that looks again by itself takes nothing away from the one that follows an act.
        again = LIVE in self.request.headers
        said = "" if again else unquote(self.request.cookies.get(SAID, ""))[:LONGEST_SAID]
        theme = self.request.cookies.get(THEME, "")
        told: Mapping[str, Any] = {
            "visit": self,
            "who": self.who,
            "to": self.to,
            "may": self.may,
            "base": self.base,
            "place": self.house.place,
            "token_field": self.token_field,
            "screen": screen,
            "said": said,
            "theme": theme if theme in ("light", "dark") else "",
            "now": self.now,
            "cli": "",
            "own": "",
        }
        answer = HTMLResponse(rendered(template, {**told, **values}), status)
        if said:
            answer.delete_cookie(SAID, path=self.base or "/")
        return answer

    def done(self, said: str, path: str, /, **query: Any) -> Response:
        """Say what was done, on the page that follows."""
        answer = RedirectResponse(self.to(path, **query), 303)
        text = quote(said[:LONGEST_SAID].encode("utf-8", "replace"), safe="")
        answer.set_cookie(SAID, text, max_age=60, path=self.base or "/", httponly=True, samesite="strict")
        return answer

    def token_field(self) -> Markup:
        """What goes with each form, so that no other site can send it."""
        return Markup('<input type="hidden" name="form_token" value="{}">').format(self.who.form_token)


def _form(body: bytes) -> dict[str, list[str]]:
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS, errors="strict")
    except ValueError:
        raise InvalidInput("the form cannot be read", hint="Go back, and send it again.") from None
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


#: A page, or what is done with a form.
Handler = Callable[[PageRequest], Response]
