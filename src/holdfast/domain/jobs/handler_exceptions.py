"""What a handler may raise to say how its run ended, when "it failed" would be wrong."""

from __future__ import annotations

from datetime import timedelta

from holdfast.domain.text import Duration, as_duration


class Retry(Exception):
    """The run failed and shall be tried again after *after*, or as the retry curve says."""

    def __init__(self, why: str = "the handler asked for another attempt", *, after: Duration | None = None) -> None:
        super().__init__(why)
        self.after = None if after is None else as_duration(after)


class Fail(Exception):
    """The run failed. *permanent*: another attempt would fail as well."""

    def __init__(self, why: str = "the handler gave up", *, permanent: bool = True) -> None:
        super().__init__(why)
        self.permanent = permanent


class Release(Exception):
    """The failure is not the job's: it goes back without losing an attempt."""

    def __init__(self, why: str = "released by its handler", *, delay: Duration = 0) -> None:
        super().__init__(why)
        self.delay = as_duration(delay)


class Snooze(Release):
    """The job is too early: it comes back after *delay*, without losing an attempt."""

    def __init__(self, delay: Duration, why: str = "snoozed by its handler") -> None:
        super().__init__(why, delay=delay)


class Asleep(BaseException):
    """The handler sleeps: its slot goes to others until it comes back. Not an Exception, so that none catches it."""

    def __init__(self, delay: timedelta) -> None:
        super().__init__(f"asleep for {delay}")
        self.delay = delay


class Skip(Exception):
    """A unit of a batch need not be done; the reason is kept."""


class Fatal(Exception):
    """A unit of a batch has met something that makes it senseless to go on with any other."""


class Cancelled(Exception):
    """The handler has stopped because it was told to."""


class AlreadyFinished(Exception):
    """Another holder has ended the unit meanwhile: what this one did must not be kept."""
