"""New batches that people start by the name of a function, without its application: the workers run them."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from holdfast.admin.actions.actions import Actions
from holdfast.client.batches.batch_claim import source_of
from holdfast.client.batches.keys import parse_range
from holdfast.domain.batches.batch import (
    DEFAULT_SHARDS,
    MAX_SHARDS,
    BatchId,
    FailureLimits,
    Sharding,
    identity,
    shard_kind,
)
from holdfast.domain.batches.unit import unit_key
from holdfast.domain.batches.unit_function import PublishedUnit, function_kind, load_unit
from holdfast.domain.fleet.queue import checked_queue
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.json_values import to_json
from holdfast.domain.jobs.kind_options import PublishedKind, check_payload, load_options
from holdfast.domain.names import checked_name
from holdfast.domain.quantities import checked_number
from holdfast.errors import InvalidInput, ServiceRunning, UnknownKind
from holdfast.store import Store
from holdfast.store.batches.runs import RunRequest
from holdfast.worker.batches.conflicts import first_running, this_process

#: Keys that one request starts a batch with.
MAX_KEYS = 100_000


class BatchRequest(Struct, frozen=True, kw_only=True):
    """A batch to start: a function that a worker has registered, and its keys.

    *keys* are a list, or a *range* such as ``1-1000`` with both ends. The same request again resumes the batch.
    *accept_drift*: continue although the function has moved or its version has changed.
    """

    function: str
    keys: list[Any] | None = None
    range: str | None = None
    arguments: dict[str, Any] = {}
    name: str | None = None
    shards: int = DEFAULT_SHARDS
    queue: str | None = None
    priority: int = 0
    fresh: bool = False
    accept_drift: bool = False


class BatchStarted(Struct, frozen=True):
    """The batch that the workers have now, and the number of its keys. In a *dry_run* it has no id."""

    batch: BatchId | None
    generation: int
    created: bool
    state: str | None
    units: int
    dry_run: bool = False


def start_batch(actions: Actions, request: BatchRequest, *, dry_run: bool = False) -> BatchStarted:
    """Start a batch on the workers. Keys and arguments are checked as far as the published function allows.

    Raises:
        UnknownKind: No worker has registered the function.
        InvalidPayload: A key or an argument does not fit the function.
        BatchHeld: Another run of the batch is alive.
        BatchPaused: A person has paused the batch.
        Drift: The function has moved, or its version has changed, under an open batch.
        ServiceRunning: A service that writes the same data is running.
    """
    store = actions.store
    kind = _published(store, request.function)
    unit = load_unit(kind.options)
    keys = _checked_keys(request, kind, unit)
    sharding = _sharding(request, kind, unit)
    run = _run_request(request, unit, keys, actor=actions.actor)
    if dry_run:
        return BatchStarted(None, 0, True, None, len(keys), dry_run=True)
    if (running := first_running(unit.conflicts, store)) is not None:
        raise ServiceRunning(f"{running} is running")
    audited = actions.audited(
        "batch start",
        lambda batch_ids: f"batch={batch_ids[0]}",
        note=request.function,
        changes=lambda opened: [] if opened is None else [opened.batch.id],
    )
    worker = WorkerId(f"start-{socket.gethostname()[:40]}-{os.urandom(4).hex()}")
    opened = audited.batches.open(run, worker=worker)
    from holdfast.client.batches.remote import plan_batch  # with everything that runs units

    batch = plan_batch(store, opened, keys, sharding, accept_drift=request.accept_drift)
    return BatchStarted(batch.id, batch.generation, opened.created, batch.state, len(keys))


def _published(store: Store, function: str) -> PublishedKind:
    try:
        kind = store.kinds.get(function_kind(checked_name(function, label="the function")))
    except UnknownKind:
        prefix = function_kind("")
        known = [name.removeprefix(prefix) for name in store.kinds.names() if name.startswith(prefix)]
        hint = f"Known functions: {', '.join(known[:10])}." if known else "Start a worker of its application."
        raise UnknownKind(f"no worker has registered the function {function!r}", hint=hint, kind=function) from None
    return structs.replace(kind, name=function)


def _checked_keys(request: BatchRequest, kind: PublishedKind, unit: PublishedUnit) -> Sequence[Any]:
    if (request.keys is None) == (request.range is None):
        raise InvalidInput("a batch has keys, or a range", hint='Give "keys": [1, 2] or "range": "1-1000".')
    keys: Sequence[Any] = parse_range(request.range) if request.range is not None else request.keys or []
    if not 1 <= len(keys) <= MAX_KEYS:
        raise InvalidInput(f"a batch has 1 to {MAX_KEYS:,} keys here, not {len(keys):,}")
    if unit.key in request.arguments:
        raise InvalidInput(f"{unit.key!r} is the key of a unit, not an argument", hint="Give it in keys.")
    for key in (keys[0], keys[-1]) if isinstance(keys, range) else keys:
        unit_key(key)
        check_payload(kind, {**request.arguments, unit.key: key})
    return keys


def _sharding(request: BatchRequest, kind: PublishedKind, unit: PublishedUnit) -> Sharding:
    if not 1 <= request.shards <= MAX_SHARDS:
        raise InvalidInput(f"shards is a number from 1 to {MAX_SHARDS:,}, not {request.shards!r}")
    return Sharding(
        kind=shard_kind(request.function),
        shards=request.shards,
        queue=checked_queue(request.queue or load_options(kind.options).queue),
        priority=checked_number(request.priority, label="the priority"),
        limits=FailureLimits(in_a_row=unit.max_failures),
        in_doubt_if_lost=unit.in_doubt_if_lost,
        rate=unit.rate,
    )


def _run_request(request: BatchRequest, unit: PublishedUnit, keys: Sequence[Any], *, actor: str) -> RunRequest:
    """The same identity as that of a run in Python."""
    source = request.name or source_of(keys)
    return RunRequest(
        identity=identity(request.function, unit.identity_arguments(request.arguments), source),
        kind=request.function,
        arguments=to_json(request.arguments, label="the arguments").decode(),
        source=source,
        name=None if request.name is None else checked_name(request.name, label="the name"),
        actor=actor,
        owner=this_process().encode(),
        version=unit.version,
        code=unit.code,
        origin=unit.origin,
        accept_drift=request.accept_drift,
        total=len(keys),
        fresh=request.fresh,
        submits=True,
    )
