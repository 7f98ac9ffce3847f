"""The options of actions, declared once: command line, HTTP API and pages read this declaration."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

Name = Annotated[str, Meta(max_length=200)]
Text = Annotated[str, Meta(max_length=2000)]
Slots = Annotated[int, Meta(ge=0, lt=2**31)]
Note = Annotated[Text | None, Meta(description="Reason, shown with the object and in the audit log.")]
Scopes = Annotated[tuple[Name, ...], Meta(max_length=1000, description="Only this scope; repeatable. [all]")]


class NoteOptions(Struct, frozen=True, kw_only=True):
    """The option of actions that keep a reason."""

    note: Note = None


class JobActionOptions(NoteOptions, frozen=True, kw_only=True):
    """The options of actions on jobs."""

    with_dependents: Annotated[
        bool, Meta(description="Also run jobs again that were cancelled because one of these failed.")
    ] = False
    memory: Annotated[Name | None, Meta(title="SIZE", description="New memory limit of commands: 512M, 8G.")] = None
    done: Annotated[bool, Meta(description="Also run done commands again.")] = False
    priority: Annotated[
        Annotated[int, Meta(ge=-(2**31), lt=2**31)] | None, Meta(description="New priority; higher runs first.")
    ] = None
    to_queue: Annotated[Name | None, Meta(title="QUEUE", description="Move the jobs to this queue.")] = None
    run_at: Annotated[
        Name | None, Meta(title="WHEN", description="A time (RFC 3339), a time from now (3h), or now.")
    ] = None


class QueueActionOptions(NoteOptions, frozen=True, kw_only=True):
    """The options of actions on queues."""

    limit: Annotated[
        Slots | None, Meta(title="N|none", description="Running jobs over all hosts; 0 removes the limit.")
    ] = None
    worker_limit: Annotated[
        Slots | None, Meta(title="N|none", description="Running jobs per worker; 0 removes the limit.")
    ] = None
    create: Annotated[bool, Meta(description="Pause a queue that has no jobs, settings or workers yet.")] = False
    autoscaler: Annotated[
        Name | None,
        Meta(title="MIN-MAX", description="Commands per worker, as many as its host has room for: 1-8; or off."),
    ] = None


class ScheduleActionOptions(NoteOptions, frozen=True, kw_only=True):
    """The options of actions on schedules. *first* and *last* plan of a backfill; *last* is now by default."""

    scopes: Scopes = ()
    first: Annotated[datetime | None, Meta(description="The first plan of a backfill.")] = None
    last: Annotated[datetime | None, Meta(description="The last plan of a backfill. [now]")] = None
