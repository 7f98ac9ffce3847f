"""What the API answers and does: one function per endpoint, with the types of what it is asked and answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from holdfast.domain.access.roles import Role
from holdfast.errors.http import Forbidden
from holdfast.web.security.authentication import Caller

if TYPE_CHECKING:
    from holdfast.admin.actions.actions import Actions
    from holdfast.admin.views.masking import Masks
    from holdfast.store import Store
    from holdfast.web.app import Site

#: A page of a list has at most so many entries.
MOST = 500


class ApiRequest(Struct, frozen=True):
    """One request of the API: who asks, the number in the path, and what is asked."""

    site: Site
    caller: Caller
    actions: Actions
    id: int
    query: Any
    body: Any

    @property
    def store(self) -> Store:
        return self.site.store

    @property
    def masks(self) -> Masks:
        return self.site.masks

    @property
    def dry_run(self) -> bool:
        """Whether it is only to be tried."""
        return bool(getattr(self.body, "dry_run", False))

    @property
    def dry_run_store(self) -> Actions:
        """Where it is done, or in a dry run rehearsed."""
        return self.actions.dry_run_store() if self.dry_run else self.actions

    def need(self, role: Role, what: str) -> None:
        """Go on only if the caller's role is enough.

        Raises:
            Forbidden: It is not.
        """
        refuse_role(self.caller, role, what)


def refuse_role(caller: Caller, role: Role, what: str) -> None:
    """Go on only if the caller's role is enough.

    Raises:
        Forbidden: It is not.
    """
    if not caller.role.may(role):
        hint = "Ask somebody who may, or use another token."
        raise Forbidden(f"{what} needs the role {role}, and {caller.name} is {caller.role}", hint=hint)


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing is asked beyond the address."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """One way to ask the API. *query* and *body* say what may be given, *answer* what comes back."""

    method: Literal["GET", "POST"]
    path: str
    text: str
    act: Callable[[ApiRequest], Any]
    answer: Any
    query: Any = Nothing
    body: Any = None
    role: Role = Role.VIEWER
    #: Of what was done; a dry run has 200.
    status: int = 200
