"""The audit log: the actions of people, from every edge, written in the transactions of their changes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from holdfast.domain.access.audit import AuditEntry, Via
from holdfast.domain.names import checked_actor, clean_text
from holdfast.store.engine.backend import Backend
from holdfast.store.engine.operation import Noun, Operation, OperationFunction, P, Query, T, query
from holdfast.store.engine.wrapper import BackendWrapper

#: Entries that one filtered page examines.
WINDOW_SIZE = 5000
NEWEST = 2**62
MAX_TARGET_LENGTH, MAX_NOTE_LENGTH = 500, 1000

#: The changes of a transaction: whether there is one, their number, or the distinct things that changed.
Changes = bool | int | Collection[Any]


def changes_of(answer: Any) -> Changes:
    """The changes that the answer of most operations reports; None and a struct mean that it worked."""
    return answer if isinstance(answer, bool | int | Collection) else True


class AuditedAction(NamedTuple):
    """An action of a person, for its audit entry. The database adds its own user.

    *target* may depend on what has changed. *changes* reads the answer of each transaction.
    """

    actor: str
    via: Via
    action: str
    target: str | Callable[[Any], str]
    note: str | None = None
    changes: Callable[[Any], Changes] = changes_of
    os_user: str | None = None


class AuditLog(Noun):
    """Audit entries. Only retention deletes them."""

    def write(self, action: AuditedAction, *, count: int | None = None) -> int:
        """Record an action that changes nothing in the store; returns the number of the entry."""
        assert isinstance(action.target, str)
        return int(self._backend.run(_insertion(action, action.target, count))[0][0])

    def page(
        self, *, before: int = NEWEST, limit: int = 50, actor: str | None = None, text: str | None = None
    ) -> list[AuditEntry]:
        """Entries, newest first. A filtered page examines at most 5,000 entries, so that it never takes long."""
        window = limit if actor is None and text is None else WINDOW_SIZE
        values = {"before": before, "limit": limit, "window": window, "actor": actor, "text": text}
        return self._fetch("list_audit_entries", AuditEntry, **values)


class AuditedBackend(BackendWrapper):
    """Writes the audit entry of one action in the transactions of its changes: both are kept, or neither.

    - The first transaction that changes something inserts the entry. Later ones add to its count, so that the entry
      of an action that failed half-way says what it did.
    - A transaction that changes nothing writes no entry.
    """

    def __init__(self, backend: Backend, action: AuditedAction) -> None:
        super().__init__(backend)
        self._action = action
        self._entry: int | None = None
        self._changes: Changes = False

    def write(self, operation: OperationFunction[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer, entry, changes = self._backend.write(self._recorded, lambda: operation(*args, **kwargs))
        self._entry, self._changes = entry, changes  # only now: the operation may have run twice
        return answer

    def _recorded(self, operation: Callable[[], Operation[T]]) -> Operation[tuple[T, int | None, Changes]]:
        answer = yield from operation()
        changes = self._action.changes(answer)
        if not changes:
            return answer, self._entry, self._changes
        total = _sum(self._changes, changes)
        target, count = self._action.target, _count(total)
        text = target if isinstance(target, str) else target(total)
        if self._entry is None:
            rows = yield _insertion(self._action, text, count)
            return answer, int(rows[0][0]), total
        yield query("update_audit_entry", id=self._entry, target=clean_text(text, limit=MAX_TARGET_LENGTH), count=count)
        return answer, self._entry, total


def _insertion(action: AuditedAction, target: str, count: int | None) -> Query:
    return query(
        "insert_audit_entry",
        actor=checked_actor(action.actor),
        via=action.via,
        action=action.action,
        target=clean_text(target, limit=MAX_TARGET_LENGTH),
        count=count,
        note=None if action.note is None else clean_text(action.note, limit=MAX_NOTE_LENGTH),
        os_user=action.os_user,
    )


def _sum(before: Changes, changes: Changes) -> Changes:
    match before, changes:
        case bool(), _:
            return changes
        case int(), int() if not isinstance(changes, bool):
            return before + changes
        case Collection(), Collection():
            return sorted({*before, *changes})
        case _:
            return before


def _count(changes: Changes) -> int | None:
    if isinstance(changes, bool):
        return None
    return changes if isinstance(changes, int) else len(changes)
