"""Unique keys of jobs: operations that reserve them, and conflicts between requests for one key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.domain.jobs.history import EventName
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.new_job import Enqueued, EnqueueOutcome, KeyHolder, KeyScope, NewJob, OnConflict, is_free
from holdfast.errors import DuplicateJob, InvalidInput
from holdfast.store.engine.operation import Operation, Rows, query
from holdfast.store.jobs.events import record

#: A kind and a key.
KindKey = tuple[str, str]


def reserve_keys(requests: Sequence[NewJob], ids: Sequence[JobId]) -> Operation[list[Enqueued]]:
    """Decide by the keys which requests become jobs, and take the keys of those."""
    first: dict[KindKey, int] = {}  # each key and the position of the first request for it
    for i, request in enumerate(requests):
        if request.unique is not None:
            first.setdefault(_key(request), i)
    answers = [Enqueued(job_id) for job_id in ids[: len(requests)]]
    if not first:
        return answers
    holders: list[KeyHolder] = yield query(
        "claim_keys", KeyHolder, requested=_key_columns(requests, ids, [first[key] for key in sorted(first)])
    )
    taken = [h for h in holders if h.job_id != ids[first[h.kind, h.key]]]
    live = yield from _live_holders(taken)
    free = {(h.kind, h.key) for h in taken if is_free(h, live=bool(live & {h.job_id, h.previous_id}))}
    if free:
        yield query("transfer_keys", requested=_key_columns(requests, ids, [first[key] for key in sorted(free)]))
    owner = {(h.kind, h.key): _owner(h, live) for h in holders} | {key: ids[first[key]] for key in free}
    for i, request in enumerate(requests):
        if request.unique is not None and owner[_key(request)] != ids[i]:
            again = first[_key(request)] != i
            answers[i] = yield from _conflict(request, owner[_key(request)], ids[i], live=live, again=again)
            owner[_key(request)] = answers[i].id
    return answers


def _key(request: NewJob) -> KindKey:
    assert request.unique is not None
    return (request.kind, request.unique.key)


def _key_columns(requests: Sequence[NewJob], ids: Sequence[JobId], positions: list[int]) -> Rows:
    chosen = [requests[i] for i in positions]
    uniques = [request.unique for request in chosen if request.unique is not None]
    return Rows(
        kind=[request.kind for request in chosen],
        key=[unique.key for unique in uniques],
        job_id=[ids[i] for i in positions],
        scope=[unique.scope for unique in uniques],
        period=[unique.period for unique in uniques],
    )


def _live_holders(holders: list[KeyHolder]) -> Operation[set[JobId]]:
    """The live jobs among those that have keys, or had them before. The rows of the keys are locked."""
    ids = sorted({job_id for h in holders for job_id in (h.job_id, h.previous_id) if job_id is not None})
    rows = (yield query("list_live_ids", ids=ids)) if ids else []
    return {row[0] for row in rows}


def _owner(holder: KeyHolder, live: set[JobId]) -> JobId:
    """The job that a conflict is about: the present one, or the one before it if only that one is live."""
    previous = holder.previous_id
    return previous if previous in live and holder.job_id not in live else holder.job_id


def _conflict(request: NewJob, owner: JobId, new_id: JobId, *, live: set[JobId], again: bool) -> Operation[Enqueued]:
    """The answer to a request whose key is taken; *again*: by an earlier request of the same call."""
    assert request.unique is not None
    match request.on_conflict:
        case OnConflict.SKIP:
            return Enqueued(owner, EnqueueOutcome.EXISTING)
        case OnConflict.RAISE:
            # Without the key: it may contain a secret, which views mask.
            raise DuplicateJob(f"job {owner} of kind {request.kind!r} has the unique key already", job_id=owner)
        case OnConflict.REPLACE | OnConflict.RERUN:
            if again:
                raise InvalidInput(f"two requests of one call replace the same key of kind {request.kind!r}")
            rows = yield query("replace_job", **replaceable_columns(request, owner))
            if rows:
                yield from record(EventName.REPLACED, {owner: None}, actor=request.actor)
                return Enqueued(owner, EnqueueOutcome.REPLACED)
            if request.on_conflict is OnConflict.REPLACE or owner not in live:
                return Enqueued(owner, EnqueueOutcome.EXISTING)
            # It is running, or has just finished. The new job depends on it, which decides when it starts.
            key = {"kind": request.kind, "key": request.unique.key}
            yield query("pass_key", **key, job_id=new_id, previous_id=owner)
            return Enqueued(new_id, EnqueueOutcome.RERUN, waits_for=owner)


def replaceable_columns(request: NewJob, job_id: JobId | None) -> dict[str, Any]:
    """The values that a replacement changes in a job that is live already."""
    names = ("kind_version", "payload", "label", "tags", "priority", "delay", "run_at")
    return {"id": job_id, **{name: getattr(request, name) for name in names}}


def reclaim_keys(keyed: Mapping[KindKey, JobId]) -> Operation[set[JobId]]:
    """Take the keys of jobs that are about to run again; returns the jobs whose key another live job has."""
    if not keyed:
        return set()
    holders: list[KeyHolder] = yield query("claim_keys", KeyHolder, requested=_live_key_columns(keyed))
    live = yield from _live_holders(holders)
    others = [h for h in holders if h.job_id != keyed[h.kind, h.key]]
    blocked = {(h.kind, h.key) for h in others if live & {h.job_id, h.previous_id}}
    free = {key: job_id for key, job_id in keyed.items() if key not in blocked}
    yield query("restore_keys", requested=_live_key_columns(free))
    return {keyed[key] for key in blocked}


def _live_key_columns(keyed: Mapping[KindKey, JobId]) -> Rows:
    order, size = sorted(keyed), len(keyed)
    names = {"kind": [kind for kind, _ in order], "key": [key for _, key in order]}
    ids = [keyed[pair] for pair in order]
    return Rows(**names, job_id=ids, scope=[KeyScope.LIVE] * size, period=[None] * size)
