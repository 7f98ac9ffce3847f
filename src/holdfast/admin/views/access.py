"""Views of the audit log and of saved filters, with secrets masked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import structs

from holdfast.admin.views.masking import Masks
from holdfast.domain.access.masking import mask_text
from holdfast.domain.access.roles import AuditEntry
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.selector import Selector, parse_filter
from holdfast.errors import InvalidInput
from holdfast.store import Store
from holdfast.store.access.audit import NEWEST
from holdfast.store.access.saved_filters import SavedFilter

#: Jobs of one entry whose payloads are read.
MAX_NOTED_JOBS = 100


def audit_views(
    store: Store,
    masks: Masks,
    *,
    before: int = NEWEST,
    limit: int = 50,
    actor: str | None = None,
    text: str | None = None,
) -> list[AuditEntry]:
    """A page of the audit log, newest first. Notes about single jobs may contain secrets of their payloads."""
    entries = store.audit_log.page(before=before, limit=limit, actor=actor, text=text)
    noted = {entry.id: _ids(entry.target) for entry in entries if entry.note}
    ids = tuple({job_id for listed in noted.values() for job_id in listed})
    jobs = store.views.page(Selector(ids=ids), limit=len(ids)).jobs if ids else []
    values = {job.id: masks.values(job) for job in jobs}
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
