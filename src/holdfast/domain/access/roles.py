"""Roles, and the audit entries of what people did."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from holdfast.errors import InvalidInput


class Role(StrEnum):
    """The permissions of a credential; each role includes those before it."""

    #: Read everything.
    VIEWER = "viewer"
    #: Act on existing jobs, and enqueue jobs of registered kinds.
    OPERATOR = "operator"
    #: Also add commands, change schedules, and delete things.
    ADMIN = "admin"

    def may(self, required: Role) -> bool:
        """Whether this role includes the *required* one."""
        order = list(Role)
        return order.index(self) >= order.index(required)


#: Stored errors are not masked: a search could guess a secret character by character.
ERROR_SEARCH = "searching in the texts of errors"


class Via(StrEnum):
    """The interface through which a person acted."""

    CLI = "cli"
    WEB = "web"
    API = "api"


class AuditEntry(Struct, frozen=True):
    """An action of a person on *target*, which changed *count* things."""

    id: int
    at: datetime
    actor: str
    via: Via
    action: str
    target: str
    count: int | None
    note: str | None


def checked_role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise InvalidInput(f"there is no role {text[:40]!r}", hint=f"Roles: {', '.join(Role)}.") from None
