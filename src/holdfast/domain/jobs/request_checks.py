"""Checks of requests for new jobs that need no store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from holdfast.domain.fleet.queue import checked_queue
from holdfast.domain.jobs.new_job import Actor, KeyScope, NewJob, OnConflict
from holdfast.domain.names import checked_actor, checked_key, checked_name
from holdfast.domain.quantities import checked_delay, checked_number, checked_timestamp
from holdfast.errors import InvalidInput

SYSTEM = frozenset(str(actor) for actor in Actor)


def check_requests(requests: Sequence[NewJob]) -> None:
    """Refuse requests that no store should keep, before any transaction begins."""
    for request in requests:
        _check_names(request.kind, request.queue, request.actor)
        _check_values(request)


@lru_cache(maxsize=1000)  # most requests share their names
def _check_names(kind: str, queue: str, actor: str) -> None:
    checked_name(kind, label="the kind")
    checked_queue(queue)
    checked_actor(actor, system=SYSTEM)


def _check_values(request: NewJob) -> None:
    if request.label is not None:
        checked_name(request.label, label="the label")
    if request.unique is not None:
        checked_key(request.unique.key, kind=request.kind)
    if request.on_conflict is OnConflict.RERUN:
        _check_rerun(request)
    checked_number(request.priority, label="a priority")
    if request.delay is not None and request.run_at is not None:
        raise InvalidInput("a delay and a run_at cannot be combined")
    if request.run_at is not None:
        checked_timestamp(request.run_at, label="run_at")
    if request.delay is not None:
        checked_delay(request.delay, label="a delay")


def _check_rerun(request: NewJob) -> None:
    if request.unique is not None and request.unique.scope is not KeyScope.LIVE:
        hint = "Leave key_for and unique_for out."
        raise InvalidInput("on_conflict='rerun' needs a key that is free again when its job finishes", hint=hint)
    if request.after is not None:
        raise InvalidInput("on_conflict='rerun' and after cannot be combined")
