"""The options of an enqueue, declared once. Python, command line, HTTP API and reference read this declaration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from msgspec import Meta, Struct

from holdfast.domain.fleet.queue import checked_queue
from holdfast.domain.jobs.dependencies import After
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.json_values import to_json
from holdfast.domain.jobs.new_job import KeyScope, NewJob, OnConflict, Unique
from holdfast.domain.jobs.retry_curve import Curve, retry_curve
from holdfast.domain.names import MAX_KEY, MAX_NAME, checked_name, checked_text
from holdfast.domain.quantities import Duration, as_duration, checked_number, checked_timestamp
from holdfast.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast.domain.jobs.kind_options import KindOptions

Name = Annotated[str, Meta(max_length=MAX_NAME)]
#: Durations in JSON and on the command line; Python also takes a timedelta.
Time = Annotated[str, Meta(max_length=MAX_NAME)] | float
Number32 = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
Count = Annotated[int, Meta(ge=0, lt=2**31)]
Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class EnqueueOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of an enqueue, as people write them. None means the default of the kind."""

    queue: Annotated[Name | None, Meta(description="Queue, instead of that of the kind.")] = None
    priority: Annotated[Number32 | None, Meta(description="Priority; higher runs first. [that of the kind]")] = None
    delay: Annotated[Time | None, Meta(description="Start no earlier than this time from now: 90s, 2h, 1d.")] = None
    run_at: Annotated[datetime | None, Meta(description="Start no earlier than this time (RFC 3339).")] = None
    label: Annotated[Name | None, Meta(description="Label to find it by.")] = None
    tags: Annotated[tuple[Name, ...], Meta(max_length=100, description="Tag to find it by; repeatable.")] = ()
    key: Annotated[
        Annotated[str, Meta(max_length=MAX_KEY)] | None,
        Meta(description="Unique key. If a live job has it, none is added."),
    ] = None
    key_for: Annotated[
        Time | None, Meta(description="How long the key stays taken: a time, or ever. [while the job is live]")
    ] = None
    on_conflict: Annotated[
        OnConflict, Meta(description="Action if the key is taken. rerun: run once more after the job that is running.")
    ] = OnConflict.SKIP
    after: Annotated[
        Annotated[list[Id], Meta(max_length=1000)] | After | None,
        Meta(description="Start when these jobs are done: ids with commas; repeatable."),
    ] = None
    hold: Annotated[bool, Meta(description="Hold it until holdfast unhold.")] = False
    max_attempts: Annotated[
        Count | None, Meta(description="Maximum number of attempts; 0: no limit. [that of the kind]")
    ] = None
    timeout: Annotated[Time | None, Meta(description="Maximum run time; 0: no limit. [that of the kind]")] = None
    retry: Annotated[
        Annotated[list[Time], Meta(max_length=100)] | None,
        Meta(description="Delays between attempts: 10s,1m,10m; the last one repeats. [that of the kind]"),
    ] = None

    def __post_init__(self) -> None:
        """Refuse invalid values at once, not when the job is made."""
        if self.on_conflict not in tuple(OnConflict):
            raise InvalidInput(f"on_conflict is 'skip', 'replace', 'rerun' or 'raise', not {self.on_conflict!r}")
        if self.max_attempts is not None and checked_number(self.max_attempts, label="max_attempts") < 0:
            raise InvalidInput(f"max_attempts is at least 1, or 0 for no limit, not {self.max_attempts}")
        if self.run_at is not None:
            checked_timestamp(self.run_at, label="run_at")
        for read in (self.delayed, self.curve, self.timeout_seconds, self.dependencies):
            read()

    def delayed(self) -> timedelta | None:
        return None if self.delay is None else as_duration(self.delay)

    def timeout_seconds(self) -> float | None:
        """The longest run in seconds; 0: no limit; None: that of the kind."""
        return None if self.timeout is None else as_duration(self.timeout).total_seconds()

    def attempts(self) -> int | None:
        """The most attempts; None: no limit."""
        return checked_number(self.max_attempts or 0, label="max_attempts") or None

    def curve(self) -> Curve | None:
        return None if self.retry is None else retry_curve(self.retry)

    def tags_json(self) -> str | None:
        value: Any = self.tags  # in Python also one text
        tags = (value,) if isinstance(value, str) else tuple(value)
        if not all(isinstance(tag, str) for tag in tags):
            raise InvalidInput(f"tags are texts, not {tags!r}")
        return to_json([checked_name(tag, label="a tag") for tag in tags], label="the tags").decode() if tags else None

    def dependencies(self) -> After | None:
        """The jobs to start after. Python also takes a reference to a job, or a list of them."""
        value: Any = self.after
        if value is None or isinstance(value, After):
            return value
        jobs = value if isinstance(value, Iterable) and not isinstance(value, bytes) else [value]
        ids: list[Any] = [getattr(job, "id", job) for job in jobs]
        if not all(isinstance(job_id, int) for job_id in ids):
            raise InvalidInput(f"after is a job, its id, or a list of them, not {value!r}")
        return After(ids=tuple(JobId(job_id) for job_id in ids))

    def unique(self, own_key: str | None, scope: KeyScope, period: timedelta | None) -> Unique | None:
        """The key of the job: its own, or one of the kind with the *scope* and *period* of the kind."""
        if self.key is None and own_key is None:
            if self.key_for is not None:
                raise InvalidInput("key_for needs a key")
            return None
        key = own_key or "" if self.key is None else checked_text(self.key, label="the key")
        if self.key_for is None:
            return Unique(key, scope, period)
        if self.key_for == "ever":
            return Unique(key, KeyScope.FOREVER)
        return Unique(key, KeyScope.PERIOD, as_duration(self.key_for))


class EnqueueArguments(TypedDict, total=False):
    """The options of :meth:`holdfast.Handler.options` in Python, which explains them."""

    queue: str | None
    priority: int | None
    delay: Duration | None
    run_at: datetime | None
    label: str | None
    tags: Sequence[str]
    key: str | None
    key_for: Duration | None
    on_conflict: str
    after: Any
    hold: bool
    max_attempts: int | None
    timeout: Duration | None
    retry: Curve | Sequence[Duration] | None
    actor: str | None
    connection: Any


def complete(options: EnqueueOptions, defaults: KindOptions, *, own_key: str | None, **request: Any) -> NewJob:
    """A new job: what *options* leave open comes from *defaults*, those of the kind. The kind has formed *own_key*."""
    return NewJob(
        kind_version=request.pop("kind_version", None) or defaults.version,
        queue=defaults.queue if options.queue is None else checked_queue(options.queue),
        priority=defaults.priority
        if options.priority is None
        else checked_number(options.priority, label="a priority"),
        delay=options.delayed(),
        run_at=None if options.run_at is None else checked_timestamp(options.run_at, label="run_at"),
        label=None if options.label is None else checked_name(options.label, label="the label"),
        tags=options.tags_json(),
        unique=options.unique(own_key, defaults.unique_scope, defaults.unique_period),
        on_conflict=OnConflict(options.on_conflict),
        after=options.dependencies(),
        hold=bool(options.hold),
        max_attempts=defaults.max_attempts if options.max_attempts is None else options.attempts(),
        max_crashes=defaults.max_crashes,
        on_lost=defaults.on_lost,
        retry=(options.curve() or defaults.retry).dumps(),
        timeout=options.timeout_seconds(),
        **request,
    )
