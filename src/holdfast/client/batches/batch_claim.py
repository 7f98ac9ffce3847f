"""The claim of a run on its batch: only one run at a time holds a batch."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Iterable, Sequence, Sized
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from holdfast.client.batches.function import BoundFunction
from holdfast.client.batches.options import RunOptions
from holdfast.domain.batches.batch import AbortedBy, BatchId, identity
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.json_values import to_json
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.names import checked_name
from holdfast.errors import BatchHeld, HoldfastError, InvalidInput, ServiceRunning
from holdfast.output.printer import Output
from holdfast.store import Store
from holdfast.store.batches.runs import RunRequest
from holdfast.store.batches.state import BatchRun
from holdfast.worker.batches.conflicts import describe_owner, first_running, is_owner_dead, this_process

#: Pause of a run that waits for another run or for a service.
POLL_INTERVAL_S = 0.5


def open_batch(
    store: Store,
    bound: BoundFunction,
    keys: Iterable[Any],
    options: RunOptions,
    output: Output,
    *,
    submits: bool = False,
) -> BatchRun:
    """Open the batch, unless a conflicting service or another run is alive; raises like ``Holdfast.submit``.

    *submits*: the run only plans units for the workers.
    """
    bound.function.required_verifier()
    probes = [] if options.allow_concurrent else [*bound.function.options.conflicts, *options.conflicts]
    waiting = _Wait(output)
    while (running := first_running(probes, store)) is not None:
        if not options.wait:
            raise ServiceRunning(f"{running} is running")
        waiting.pause(f"waiting for the end of {running}")
    request = msgspec.structs.replace(run_request(bound, keys, options), submits=submits)
    opening = store if options.audit is None else store.audited(options.audit)
    return _open(opening, request, wait=options.wait, output=output)


def abandon_batch(store: Store, opened: BatchRun) -> None:
    """Release a batch whose run broke; a new batch of which no unit ran is deleted."""
    with suppress(HoldfastError):
        batch, counters = store.batches.end(opened, AbortedBy.FATAL, opened.batch.total or 0, complete=False)
        store.leases.settle(opened.lease, Done())
        if opened.created and not counters.over and not store.batches.recount(batch.id):
            store.batches.delete(batch.id)


def run_request(bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> RunRequest:
    """The identity of a run, and the conditions under which it may begin."""
    function = bound.function.options
    source = options.name or options.source or source_of(keys)
    return RunRequest(
        identity=identity(function.name, bound.identity_arguments, source),
        kind=function.name,
        arguments=to_json(bound.arguments, label="the arguments").decode(),
        source=source,
        name=None if options.name is None else checked_name(options.name, label="the name"),
        actor=options.actor,
        owner=this_process().encode(),
        version=function.version,
        inputs=_digests(options.inputs),
        code=bound.function.code,
        origin=bound.function.origin,
        total=length_of(keys),
        fresh=options.fresh,
        join=options.allow_concurrent,
        accept_drift=options.accept_drift,
    )


def source_of(keys: Iterable[Any]) -> str:
    """The part of the identity that names the keys: the bounds of a range; a list may change between runs."""
    if isinstance(keys, range):
        return f"range {keys.start}-{keys[-1]}" if len(keys) else "range"
    return "keys"


def length_of(keys: Iterable[Any]) -> int | None:
    return len(keys) if isinstance(keys, Sized) else None


def _digests(files: Sequence[str | Path]) -> str | None:
    if not files:
        return None
    try:
        digests = {str(file): hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files}
    except OSError as error:
        raise InvalidInput(f"an input cannot be read: {error}") from None
    return msgspec.json.encode(digests, order="sorted").decode()


class _Wait:
    """Polls with a pause, and prints a note before the first one."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._noted = False
        self._never_set = threading.Event()

    def pause(self, note: str) -> None:
        if not self._noted:
            self._output.note(note)
            self._noted = True
        self._never_set.wait(POLL_INTERVAL_S)


def _open(store: Store, request: RunRequest, *, wait: bool, output: Output) -> BatchRun:
    """Open the batch. A dead holder is replaced at once; for a live one, wait or raise."""
    worker = WorkerId(f"run-{socket.gethostname()[:40]}-{os.urandom(4).hex()}")
    waiting = _Wait(output)
    while True:
        try:
            return store.batches.open(request, worker=worker)
        except BatchHeld as error:
            holders = store.batches.holders(BatchId(error.context["batch_id"]))
            dead = tuple(holder.job_id for holder in holders if is_owner_dead(holder.owner))
            if dead and set(dead) - set(request.dead):
                request = msgspec.structs.replace(request, dead=dead)
                continue
            if not wait:
                whose = f": {describe_owner(holders[0].owner)}" if holders else ""
                raise BatchHeld(f"{error.message}{whose}", **error.context) from None
            waiting.pause("waiting for the run that holds this batch")
