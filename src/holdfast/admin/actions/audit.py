"""The audit log of actions: each change is recorded with its actor."""

from __future__ import annotations

from msgspec import Struct

from holdfast.domain.access.masking import mask_text
from holdfast.domain.access.roles import Via
from holdfast.store import Store


class ActionContext(Struct, frozen=True, kw_only=True):
    """The store that actions change, and the person who performs them."""

    store: Store
    actor: str
    via: Via

    def record(self, action: str, target: str, *, count: int | None = None, note: str | None = None) -> None:
        """Write an audit entry. Values that look like secrets are masked."""
        masked = None if note is None else mask_text(note)
        self.store.audit_log.write(action, mask_text(target), actor=self.actor, via=self.via, count=count, note=masked)
