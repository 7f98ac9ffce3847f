"""Batches as users see them: a unit function, its arguments, and a run over many keys."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import typing
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, ParamSpec, TypeVar

import msgspec
from msgspec import Struct

from holdfast.config import settings
from holdfast.domain.batch import AbortedBy, Batch, BatchId, Summary, UnitKey, exit_code, identity, summarise, unit_key
from holdfast.domain.breaker import Limits
from holdfast.domain.job import WorkerId
from holdfast.domain.kind import to_json
from holdfast.domain.request import Actor
from holdfast.domain.text import as_duration, checked_name
from holdfast.envelope import failure_of
from holdfast.errors import BatchHeld, BatchPaused, Drift, HoldfastError, InvalidInput
from holdfast.output import Format, Output
from holdfast.report import Report
from holdfast.run.batch import owner
from holdfast.run.batch.driver import Driver, Outcome, Plan
from holdfast.run.batch.unit import Run
from holdfast.run.signals import Signals
from holdfast.store import Store
from holdfast.store.opening import Opened, Opening
from holdfast.units import Bound, UnitFunction

P = ParamSpec("P")
R = TypeVar("R")
Duration = timedelta | float | str

SECOND_SIGNAL = 130
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
    retry_failed: bool = True
    fresh: bool = False
    allow_concurrent: bool = False
    accept_drift: bool = False
    wait: bool = False
    inputs: Sequence[str | Path] = ()
    progress_every: int = 10
    output: str | Output | None = None
    actor: str = Actor.CLIENT


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


def run_batch(store: Store, bound: Bound, keys: Iterable[Any], options: RunOptions) -> BatchResult:
    """Run *bound* over *keys* in this process, and write the ledger as it goes.

    That another run is alive, that a person has paused it, or drift, is told and answered, not raised.
    """
    if not isinstance(options.jobs, int) or not 1 <= options.jobs <= 1000:
        raise InvalidInput(f"jobs is a number from 1 to 1,000, not {options.jobs!r}")
    try:
        begun = begin(store, bound, keys, options)
    except (BatchHeld, BatchPaused, Drift) as error:
        _output(options.output).error(failure_of(error))
        return BatchResult(None, None, error.exit_code, error)
    opened, report, run = begun
    driver = Driver(store, opened, run, _plan(bound, options), keys, told=report.units)
    report.began()
    outcome = _drive(driver, report)
    summary = summarise(outcome.counters, outcome.total, outcome.aborted_by)
    code = exit_code(outcome.counters, outcome.aborted_by)
    report.ended(summary, code)
    return BatchResult(store.batches.get(opened.batch.id), summary, code)


class Begun(NamedTuple):
    """A run that has begun: its lease, what tells of it, and what its units share."""

    opened: Opened
    report: Report
    run: Run


def begin(store: Store, bound: Bound, keys: Iterable[Any], options: RunOptions) -> Begun:
    """Open the batch.

    Raises:
        BatchHeld: Another run of this identity is alive.
        BatchPaused: A person has paused it.
        Drift: The version or a declared input changed under an open run.
    """
    output = _output(options.output)
    opened = _open(store, _opening(bound, keys, options), wait=options.wait, output=output)
    report = Report(output, opened, total=_length(keys), every=options.progress_every)
    return Begun(opened, report, _shared(store, bound, opened))


class Found(Struct, frozen=True):
    """What a run would find."""

    batch: int | None
    generation: int
    ended_clean: bool
    units: int
    over: int

    @property
    def summary(self) -> Summary:
        """The same as a run would tell it: what is over has succeeded, or never will be run."""
        total = self.units + self.over
        return Summary(total=total, succeeded=self.over, failed=0, skipped=0, cancelled=0, pending=self.units)


def would_run(store: Store, bound: Bound, keys: Iterable[Any], options: RunOptions) -> Found:
    """Look at the ledger, and say what a run would do; nothing is written."""
    opening = _opening(bound, keys, options)
    latest = store.batches.latest(opening.identity)
    clean = latest is not None and latest.state == "done"
    if latest is None or clean or latest.state == "cancelled" or options.fresh:
        generation = 1 if latest is None else latest.generation + 1
        return Found(None if latest is None else latest.id, generation, clean, sum(1 for _ in keys), 0)
    counts = [0, 0]
    for chunk in _chunks(keys, 1000):
        over = store.batches.over(latest.id, [unit_key(key) for key in chunk], retry_failed=options.retry_failed)
        counts = [counts[0] + len(chunk) - over, counts[1] + over]
    return Found(latest.id, latest.generation, clean, counts[0], counts[1])


def _chunks(keys: Iterable[Any], size: int) -> Iterator[list[Any]]:
    found = iter(keys)
    while chunk := list(islice(found, size)):
        yield chunk


def _drive(driver: Driver, report: Report) -> Outcome:
    """With signals where they can be heard: in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return driver.run()

    def first() -> None:
        report.note("stopping: units under way may end; once more to leave at once")
        driver.stop(AbortedBy.SIGNAL)

    with Signals(first, lambda: os._exit(SECOND_SIGNAL)):
        return driver.run()


def _opening(bound: Bound, keys: Iterable[Any], options: RunOptions) -> Opening:
    function = bound.function.options
    source = options.name or options.source or source_of(keys)
    return Opening(
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
    found = {str(file): hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files}
    return msgspec.json.encode(found, order="sorted").decode()


def _open(store: Store, opening: Opening, *, wait: bool, output: Output) -> Opened:
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


def _shared(store: Store, bound: Bound, opened: Opened) -> Run:
    options = bound.function.options
    return Run(
        batch_id=opened.batch.id,
        identity=opened.batch.identity,
        generation=opened.batch.generation,
        function=bound.function.caller(bound.arguments),
        plain=bound.function.plain(bound.arguments),
        decode=bound.function.decoder(),
        retries=options.retries,
        curve=options.curve,
        transaction=lambda end: store.batches.transaction(opened, end),
    )


def _plan(bound: Bound, options: RunOptions) -> Plan:
    return Plan(
        jobs=options.jobs,
        limits=limits_of(bound, options),
        deadline=None if options.deadline is None else as_duration(options.deadline),
        limit=options.limit,
        retry_failed=options.retry_failed,
        doubt=bound.function.options.on_lost == "hold",
        resume_from=None if options.resume_from is None else _resume_key(bound.function, options.resume_from),
    )


def limits_of(bound: Bound, options: RunOptions) -> Limits:
    """When the breaker trips."""
    own = bound.function.options.max_failures
    return Limits(
        in_a_row=own if options.max_failures is None else options.max_failures,
        total=options.max_total_failures,
        rate=options.max_failure_rate,
    )


def _resume_key(function: UnitFunction[..., Any], value: Any) -> UnitKey:
    """A key that came as a word from a line is that of the function's type."""
    is_number = function.key_type is int and isinstance(value, str) and value.lstrip("-").isdecimal()
    return unit_key(int(value) if is_number else value)


def _output(asked: str | Output | None) -> Output:
    if isinstance(asked, Output):
        return asked
    if asked == "none":
        return Output(Format.TEXT, quiet=True)
    return Output(Format(asked or settings()["output"].value))
