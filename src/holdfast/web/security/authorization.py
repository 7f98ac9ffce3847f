"""Authorization: whether the role and the scope of a caller are enough. Every page and endpoint comes here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.domain.access.roles import Role
from holdfast.errors import Refused
from holdfast.errors.http import Forbidden

if TYPE_CHECKING:
    from holdfast.web.security.authentication import Caller

#: The only paths that a token limited to an inbox may use. Each of their handlers calls :func:`require_inbox`, or
#: passes the inbox of the caller on.
INBOX_PATHS = frozenset(f"/api/v1/inboxes/{name}" for name in ("results", "take", "action"))


def require_scope(caller: Caller, path: str) -> None:
    """Refuse a caller whose token is limited to an inbox, unless *path* is about one."""
    if caller.inbox is not None and path not in INBOX_PATHS:
        raise _beyond(caller)


def require_inbox(caller: Caller, inbox: str) -> None:
    """Refuse a caller whose token is limited to another inbox."""
    if caller.inbox not in (None, inbox):
        raise _beyond(caller)


def _beyond(caller: Caller) -> Forbidden:
    return Forbidden(f"the token {caller.name} is limited to the inbox {caller.inbox!r}", hint="Use another token.")


def require_role(caller: Caller, role: Role, subject: str, *, is_api: bool) -> None:
    """Refuse a caller whose role is not enough for *subject*. The table of actions has the role of each action."""
    if caller.role.may(role):
        return
    text = f"{subject} needs the role {role}, and {caller.name} is {caller.role}"
    if is_api:
        raise Forbidden(text, hint="Ask a person with this role, or use another token.")
    raise Refused(text, hint="Ask a person with this role, or sign in with another token.")
