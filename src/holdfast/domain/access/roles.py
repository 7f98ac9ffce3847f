"""Roles: what the holder of a credential may do."""

from __future__ import annotations

from enum import StrEnum

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


#: Stored texts are not masked: a search for a part of them could guess a secret character by character.
TEXT_SEARCH = "searching for parts of errors, labels and names"


def checked_role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise InvalidInput(f"there is no role {text[:40]!r}", hint=f"Roles: {', '.join(Role)}.") from None
