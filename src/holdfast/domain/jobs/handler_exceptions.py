"""Exceptions that a handler raises to choose the outcome of its run."""

from __future__ import annotations

from datetime import timedelta

from holdfast.domain.durations import Duration, as_duration


class Retry(Exception):
    """The run failed and is retried after *after*, or by the retry curve."""

    def __init__(self, why: str = "the handler asked for another attempt", *, after: Duration | None = None) -> None:
        super().__init__(why)
        self.after = None if after is None else as_duration(after)


class Fail(Exception):
    """The run failed. *permanent*: another attempt would fail as well."""

    def __init__(self, why: str = "the handler gave up", *, permanent: bool = True) -> None:
        super().__init__(why)
        self.permanent = permanent


class Release(Exception):
    """The job returns to its queue; this costs no attempt."""

    def __init__(self, why: str = "released by its handler", *, delay: Duration = 0) -> None:
        super().__init__(why)
        self.delay = as_duration(delay)


class Snooze(Release):
    """The job runs again after *delay*; this costs no attempt."""

    def __init__(self, delay: Duration, why: str = "snoozed by its handler") -> None:
        super().__init__(why, delay=delay)


class Asleep(BaseException):
    """The handler sleeps and its slot is free. A BaseException, so that handlers do not catch it."""

    def __init__(self, delay: timedelta) -> None:
        super().__init__(f"asleep for {delay}")
        self.delay = delay


class Skip(Exception):
    """Skip a unit of a batch; the reason is stored."""


class Fatal(Exception):
    """Stop the whole batch: no other unit can succeed."""


class Cancelled(Exception):
    """The handler has stopped on request."""


class AlreadyFinished(Exception):
    """Another holder has finished the unit meanwhile: this holder's work must be discarded."""
