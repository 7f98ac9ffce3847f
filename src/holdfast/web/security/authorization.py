"""Authorization: whether the role of a caller is enough. Every page and endpoint that needs a role comes here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.domain.access.roles import Role
from holdfast.errors import Refused
from holdfast.errors.http import Forbidden

if TYPE_CHECKING:
    from holdfast.web.security.authentication import Caller


def require_role(caller: Caller, role: Role, subject: str, *, is_api: bool) -> None:
    """Refuse a caller whose role is not enough for *subject*. The table of actions has the role of each action."""
    if caller.role.may(role):
        return
    text = f"{subject} needs the role {role}, and {caller.name} is {caller.role}"
    if is_api:
        raise Forbidden(text, hint="Ask a person with this role, or use another token.")
    raise Refused(text, hint="Ask a person with this role, or sign in with another token.")
