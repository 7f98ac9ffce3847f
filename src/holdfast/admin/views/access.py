"""Views of the audit log, of tokens and of saved filters, with secrets masked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, structs

from holdfast.admin.views.payload_secrets import job_secrets
from holdfast.domain.access.audit import AuditEntry
from holdfast.domain.access.masking import mask_text
from holdfast.domain.access.roles import Role
from holdfast.domain.access.tokens import Credential, format_scope
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.selector import SavedFilter, Selector, parse_filter
from holdfast.errors import InvalidInput
from holdfast.store import Store
from holdfast.store.access.audit import NEWEST

#: Jobs of one entry whose payloads are read.
MAX_NOTED_JOBS = 100


class TokenView(Struct, frozen=True):
    """A token without its secret, which the store does not keep. *scope* is all that it may use: ``inbox=pages``."""

    name: str
    prefix: str
    role: Role
    scope: str | None
    made_by: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


def audit_views(
    store: Store, *, before: int | None = None, limit: int = 50, actor: str | None = None, text: str | None = None
) -> list[AuditEntry]:
    """The audit log, newest first, below an id. Notes about single jobs may contain secrets of their payloads."""
    entries = store.audit_log.page(before=NEWEST if before is None else before, limit=limit, actor=actor, text=text)
    noted = {entry.id: _ids(entry.target) for entry in entries if entry.note}
    ids = tuple({job_id for listed in noted.values() for job_id in listed})
    jobs = store.views.page(Selector(ids=ids), limit=len(ids)).jobs if ids else []
    values = {job.id: job_secrets(store, job) for job in jobs}
    return [
        _masked(entry, [value for job in noted.get(entry.id, ()) for value in values.get(job, ())]) for entry in entries
    ]


def _ids(target: str) -> Sequence[JobId]:
    """The jobs that the target of an action names by id: ``id=1,2``, or ``id=1 to 9``."""
    if span := re.fullmatch(r"id=(\d{1,18}) to (\d{1,18})", target):
        return [JobId(number) for number in range(int(span[1]), int(span[2]) + 1)[:MAX_NOTED_JOBS]]
    try:
        return parse_filter(target).ids or () if target.startswith("id=") else ()
    except InvalidInput:
        return ()


def _masked(entry: AuditEntry, values: Sequence[str]) -> AuditEntry:
    """Mask an entry. The name of a token is not a secret, although it looks like one."""
    target = entry.target if entry.target.startswith("token=") else mask_text(entry.target, values)
    return structs.replace(entry, target=target, note=None if entry.note is None else mask_text(entry.note, values))


def filter_views(store: Store) -> list[SavedFilter]:
    """The filters that people saved, by name."""
    return [structs.replace(each, filter=mask_text(each.filter)) for each in store.saved_filters.list()]


def token_views(store: Store) -> list[TokenView]:
    """All tokens, revoked ones too."""
    return [token_view(each) for each in store.credentials.list()]


def token_view(each: Credential) -> TokenView:
    times = (each.created_at, each.last_used_at, each.revoked_at)
    return TokenView(each.name, each.prefix, each.role, format_scope(each.inbox), each.actor, *times)
