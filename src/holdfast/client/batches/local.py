"""Batches as users see them: a unit function, its arguments, and a run over many keys."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import typing
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import msgspec
from msgspec import Struct

from holdfast.client.batches.function import BoundFunction
from holdfast.client.batches.keys import chosen, key_of, keys_over
from holdfast.client.batches.report import RunReport
from holdfast.client.batches.shard import HookCalls, run_of
from holdfast.domain.batches.batch import (
    AbortedBy,
    Batch,
    BatchId,
    BatchState,
    Counters,
    Summary,
    UnitOutcome,
    exit_code,
    identity,
    summarise,
)
from holdfast.domain.batches.breaker import FailureLimits
from holdfast.domain.batches.sharding import SHARDS
from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.kind import to_json
from holdfast.domain.jobs.new_job import Actor
from holdfast.domain.jobs.verdict import Done
from holdfast.domain.text import Duration, as_duration, checked_name
from holdfast.errors import BatchHeld, BatchPaused, Drift, HoldfastError, InvalidInput, ServiceRunning
from holdfast.output.envelope import failure_of
from holdfast.output.printer import Format, Output, Silent
from holdfast.settings import settings
from holdfast.store import Store
from holdfast.store.batches.opening import BatchRun, RunRequest
from holdfast.worker.batches import owner
from holdfast.worker.batches.conflicts import first_running
from holdfast.worker.batches.driver import Driver, DriverHeartbeat, RunPlan
from holdfast.worker.batches.source import Keys
from holdfast.worker.batches.unit import UnitRunner
from holdfast.worker.service import ServiceThread
from holdfast.worker.signals import Signals

T = TypeVar("T")

SECOND_SIGNAL = 130
STOPPING = "stopping: units under way may end; once more to leave at once"
#: How often a run that waits for another looks again, in seconds.
LOOK_AGAIN = 0.5


class RunOptions(Struct, frozen=True, kw_only=True):
    """How a run is to go; see :meth:`holdfast.Holdfast.run`."""

    jobs: int = 1
    name: str | None = None
    source: str | None = None
    max_failures: int | None = None
    max_total_failures: int | None = None
    max_failure_rate: float | None = None
    deadline: Duration | None = None
    limit: int | None = None
    resume_from: Any = None
    only: Sequence[Any] | None = None
    retry_failed: bool = True
    fresh: bool = False
    allow_concurrent: bool = False
    accept_drift: bool = False
    wait: bool = False
    inputs: Sequence[str | Path] = ()
    progress_every: int = 10
    output: str | Output | None = None
    actor: str = Actor.CLIENT
    once: bool = False
    dry_run: bool = False
    where: str = "here"
    shards: int = SHARDS
    queue: str | None = None
    priority: int = 0
    rate: float | None = None
    conflicts: Sequence[str] = ()


class BatchResult(Struct, frozen=True):
    """How a run ended: the batch, its counts, and the exit code that says both.

    *error*: it could not begin, because another run is alive, a person has paused it, or of drift.
    """

    batch: Batch | None
    summary: Summary | None
    exit_code: int
    error: HoldfastError | None = None

    def check(self) -> None:
        """Raise what kept the run from beginning, if anything did."""
        if self.error is not None:
            raise self.error

    def exit(self) -> NoReturn:
        """End the program with the exit code of the run."""
        sys.exit(self.exit_code)


def run_batch(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> BatchResult:
    """Run *bound* over *keys* in this process, and write the ledger as it goes.

    That another run is alive, that a person has paused it, or drift, is told and answered, not raised.
    """
    if not isinstance(options.jobs, int) or not 1 <= options.jobs <= 1000:
        raise InvalidInput(f"jobs is a number from 1 to 1,000, not {options.jobs!r}")
    if options.limit is not None and options.limit < 1:
        raise InvalidInput(f"limit is a number from 1 on, not {options.limit!r}", hint="To look only, use dry_run.")
    only = chosen(bound.function, keys, only=options.only, resume_from=options.resume_from)
    begun = attempt(lambda: begin(store, bound, keys, options), output_of(options.output))
    if isinstance(begun, BatchResult):
        return begun
    opened, report, run = begun
    source = Keys(
        keys,
        resume_from=None if options.resume_from is None else key_of(bound.function, options.resume_from),
        only=only,
        over=keys_over(store, opened, keys),
        first=opened.created,
    )
    telling = HookCalls(bound.function)

    def told(ends: Sequence[UnitOutcome]) -> None:
        report.units(ends)
        telling.units(ends)

    driver = Driver(store, opened, run, _plan(bound, options), source, told=told)
    try:
        with report:
            aborted = _drive(store, begun, driver, telling)
    except BaseException:
        give_up(store, opened)
        raise
    batch, counted, aborted = _end(store, opened, source, aborted)
    summary = summarise(counted, batch.total or 0, aborted)
    code = exit_code(counted, aborted)
    telling.end(summary)
    report.finished(summary, code)
    return BatchResult(batch, summary, code)


def attempt(begin: Callable[[], T], output: Output) -> T | BatchResult:
    """Begin a run; what kept it from beginning is told, and is its result."""
    try:
        return begin()
    except (BatchHeld, ServiceRunning, BatchPaused, Drift) as error:
        output.error(failure_of(error))
        return BatchResult(None, None, error.exit_code, error)


class Begun(NamedTuple):
    """A run that has begun: its lease, what tells of it, and what its units share."""

    opened: BatchRun
    report: RunReport
    run: UnitRunner


def begin(store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> Begun:
    """Open the batch.

    Raises:
        BatchHeld: Another run of this identity is alive.
        ServiceRunning: A service that writes the same data is running.
        BatchPaused: A person has paused it.
        Drift: The version or a declared input changed under an open run.
    """
    output = output_of(options.output)
    opened = open_batch(store, bound, keys, options, output)
    report = RunReport(
        output,
        opened.batch,
        total=_length(keys),
        every=options.progress_every,
        created=opened.created,
        edited=opened.edited,
    )
    return Begun(opened, report, run_of(store, bound, opened))


def _drive(store: Store, begun: Begun, driver: Driver, telling: HookCalls) -> AbortedBy | None:
    """Renew the lease all the while, and hear signals."""

    def first() -> None:
        begun.report.note(STOPPING)
        driver.stop(AbortedBy.SIGNAL)

    lost = partial(driver.stop, AbortedBy.LEASE_LOST)
    pulse = ServiceThread(DriverHeartbeat(store, begun.opened, begun.run, lost=lost), told=lambda *_: None)
    pulse.start()
    try:
        with heard(first):
            return driver.run() if telling.begin(begun.opened.batch) else AbortedBy.FATAL
    finally:
        pulse.stop(timeout=1)


def heard(first: Callable[[], None]) -> AbstractContextManager[object]:
    """Signals where they can be heard, in the main thread: the first calls *first*, the second leaves at once."""
    if threading.current_thread() is not threading.main_thread():
        return nullcontext()
    return Signals(first, lambda: os._exit(SECOND_SIGNAL))


def _end(
    store: Store, opened: BatchRun, source: Keys, aborted: AbortedBy | None
) -> tuple[Batch, Counters, AbortedBy | None]:
    """Write where the batch stands, and end the run's own job."""
    if aborted is AbortedBy.LEASE_LOST:
        return store.batches.get(opened.batch.id), store.batches.counters(opened.batch.id), aborted
    if aborted is AbortedBy.CANCEL:
        for keys in source.rest():
            store.batches.plan(opened, keys)
        store.batches.cancel(opened.batch.id)
    aborted = None if aborted is AbortedBy.LIMIT and source.complete else aborted
    total = max(source.met, opened.batch.total or 0)
    batch, counted = store.batches.end(opened, aborted, total, complete=source.complete)
    store.leases.settle(opened.lease, Done())
    return batch, counted, AbortedBy.CANCEL if batch.state is BatchState.CANCELLED else aborted


def opening_of(bound: BoundFunction, keys: Iterable[Any], options: RunOptions) -> RunRequest:
    function = bound.function.options
    source = options.name or options.source or source_of(keys)
    return RunRequest(
        identity=identity(function.name, bound.lasting, source),
        kind=function.name,
        arguments=to_json(bound.arguments, what="the arguments").decode(),
        source=source,
        name=None if options.name is None else checked_name(options.name, what="the name"),
        actor=options.actor,
        owner=msgspec.json.encode(owner.this_process()).decode(),
        version=function.version,
        inputs=_digests(options.inputs),
        code=bound.function.code,
        total=_length(keys),
        fresh=options.fresh,
        join=options.allow_concurrent,
        accept_drift=options.accept_drift,
    )


def source_of(keys: Iterable[Any]) -> str:
    """Where keys come from, as far as it belongs to the identity: a range is its bounds, a list may change."""
    if isinstance(keys, range):
        return f"range {keys.start}-{keys[-1]}" if len(keys) else "range"
    return "keys"


def _length(keys: Iterable[Any]) -> int | None:
    return len(keys) if isinstance(keys, typing.Sized) else None


def _digests(files: Sequence[str | Path]) -> str | None:
    if not files:
        return None
    try:
        found = {str(file): hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files}
    except OSError as error:
        raise InvalidInput(f"an input cannot be read: {error}") from None
    return msgspec.json.encode(found, order="sorted").decode()


def open_batch(
    store: Store, bound: BoundFunction, keys: Iterable[Any], options: RunOptions, output: Output
) -> BatchRun:
    """Open the batch, when no service is in the way."""
    bound.function.doubts()
    probes = [*bound.function.options.conflicts, *options.conflicts]
    if not options.allow_concurrent:
        _await_services(store, probes, wait=options.wait, output=output)
    return _open(store, opening_of(bound, keys, options), wait=options.wait, output=output)


def _await_services(store: Store, probes: Sequence[str], *, wait: bool, output: Output) -> None:
    pause, told = threading.Event(), False
    while (running := first_running(probes, store)) is not None:
        if not wait:
            raise ServiceRunning(f"{running} is running")
        if not told:
            output.note(f"waiting for the end of {running}")
            told = True
        pause.wait(LOOK_AGAIN)


def _open(store: Store, opening: RunRequest, *, wait: bool, output: Output) -> BatchRun:
    """Open the batch; a dead owner is replaced at once, a live one is waited for, or is the answer."""
    worker = WorkerId(f"run-{os.urandom(6).hex()}")
    pause, told = threading.Event(), False
    while True:
        try:
            return store.batches.open(opening, worker=worker)
        except BatchHeld as held:
            holders = store.batches.holders(BatchId(held.context["batch_id"]))
            dead = tuple(holder.job_id for holder in holders if owner.is_dead(holder.owner))
            if dead and set(dead) - set(opening.dead):
                opening = msgspec.structs.replace(opening, dead=dead)
                continue
            if not wait:
                raise _who(held, [holder.owner for holder in holders]) from None
            if not told:
                output.note("waiting for the run that holds this batch")
                told = True
            pause.wait(LOOK_AGAIN)


def _who(held: BatchHeld, owners: list[str]) -> BatchHeld:
    if not owners:
        return held
    return BatchHeld(f"{held.message}: {owner.say(owners[0])}", **held.context)


def _plan(bound: BoundFunction, options: RunOptions) -> RunPlan:
    return RunPlan(
        jobs=options.jobs,
        limits=limits_of(bound, options),
        deadline=None if options.deadline is None else as_duration(options.deadline),
        limit=options.limit,
        retry_failed=options.retry_failed,
        in_doubt_if_lost=bound.function.options.on_lost == "hold",
        rate=rate_of(bound, options),
    )


def rate_of(bound: BoundFunction, options: RunOptions) -> float | None:
    """How many units may begin in a second."""
    rate = bound.function.options.rate if options.rate is None else options.rate
    if rate is not None and not (isinstance(rate, int | float) and rate > 0):
        raise InvalidInput(f"a rate is a number of units in a second, above 0, not {rate!r}")
    return rate


def limits_of(bound: BoundFunction, options: RunOptions) -> FailureLimits:
    """When the breaker trips."""
    own = bound.function.options.max_failures
    return FailureLimits(
        in_a_row=own if options.max_failures is None else options.max_failures,
        total=options.max_total_failures,
        rate=options.max_failure_rate,
    )


def give_up(store: Store, opened: BatchRun) -> None:
    """The run broke: let go of the batch, and forget one of which nothing was run."""
    with suppress(HoldfastError):
        batch, counted = store.batches.end(opened, AbortedBy.FATAL, opened.batch.total or 0, complete=False)
        store.leases.settle(opened.lease, Done())
        if opened.created and not counted.over and not store.batches.recount(batch.id):
            store.batches.remove(batch.id)


def output_of(asked: str | Output | None) -> Output:
    if isinstance(asked, Output):
        return asked
    if asked == "none":
        return Silent()
    return Output(Format(asked or settings()["output"].value))
