"""The audit log: the actions of people, from every edge."""

from __future__ import annotations

from holdfast.domain.access.roles import AuditEntry, Via
from holdfast.domain.names import checked_actor, clean_text
from holdfast.store.engine.operation import Noun, query

#: Entries that one filtered page examines.
WINDOW_SIZE = 5000
NEWEST = 2**62
MAX_TARGET_LENGTH, MAX_NOTE_LENGTH = 500, 1000


class AuditLog(Noun):
    """Audit entries. Only retention deletes them."""

    def write(
        self, action: str, target: str, *, actor: str, via: Via, count: int | None = None, note: str | None = None
    ) -> int:
        """Record an action; returns the number of the entry."""
        checked_actor(actor)
        values = {"target": clean_text(target, limit=MAX_TARGET_LENGTH), "count": count}
        text = None if note is None else clean_text(note, limit=MAX_NOTE_LENGTH)
        rows = self._backend.run(query("insert_audit_entry", actor=actor, via=via, action=action, note=text, **values))
        return int(rows[0][0])

    def page(
        self, *, before: int = NEWEST, limit: int = 50, actor: str | None = None, text: str | None = None
    ) -> list[AuditEntry]:
        """Entries, newest first. A filtered page examines at most 5,000 entries, so that it never takes long."""
        window = limit if actor is None and text is None else WINDOW_SIZE
        values = {"before": before, "limit": limit, "window": window, "actor": actor, "text": text}
        return self._fetch("list_audit_entries", AuditEntry, **values)
