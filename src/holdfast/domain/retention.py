"""Retention: how long finished jobs and other old rows stay."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from msgspec import Struct, structs

from holdfast.domain.fleet.queue import LOST_WORKERS_KEPT
from holdfast.domain.names import nearest_name
from holdfast.domain.quantities import Duration, as_duration
from holdfast.errors import InvalidInput

ZERO = timedelta(0)


class Retention(Struct, frozen=True, kw_only=True):
    """How long rows stay; zero keeps them as long as their owner, or forever."""

    #: Jobs in a final state, with their attempts and events.
    done: timedelta = timedelta(days=30)
    cancelled: timedelta = timedelta(days=30)
    dead: timedelta = timedelta(days=90)
    #: Finished batches with their ledgers.
    batches: timedelta = timedelta(days=90)
    #: Decisions about plans of schedules.
    plans: timedelta = timedelta(days=90)
    #: Events, and logs of commands, whose jobs are still there. Both go with their jobs in any case.
    events: timedelta = ZERO
    logs: timedelta = ZERO
    #: Audit entries.
    audit: timedelta = timedelta(days=365)

    @property
    def longest(self) -> timedelta:
        """How long the row of a worker stays, at least a day; zero while any jobs are kept forever."""
        ages = (self.done, self.cancelled, self.dead)
        return ZERO if ZERO in ages else max(*ages, LOST_WORKERS_KEPT)


def retention_of(ages: Mapping[str, Duration]) -> Retention:
    """The retention with these ages; the others are the defaults.

    Raises:
        InvalidInput: A name is unknown, or an age is not a duration.
    """
    for name in ages:
        if name not in Retention.__struct_fields__:
            near = nearest_name(name, Retention.__struct_fields__)
            hint = f"Did you mean {near!r}?" if near else f"The names are: {', '.join(Retention.__struct_fields__)}."
            raise InvalidInput(f"unknown retention {name!r}", hint=hint)
    return Retention(**{name: as_duration(age) for name, age in ages.items()})


class RetentionAges(dict[str, str]):
    """The ages of a retention as people write them, by name."""


def default_ages() -> RetentionAges:
    """The default retention."""
    return RetentionAges({name: f"{age.days}d" if age else "0" for name, age in structs.asdict(Retention()).items()})


def checked_ages(ages: object) -> RetentionAges:
    """Ages from a configuration file or a variable; raises like :func:`retention_of`."""
    if not isinstance(ages, dict):
        raise InvalidInput(f"a table of names and times is expected, not {ages!r}")
    text = RetentionAges({str(name): str(age) for name, age in ages.items()})
    retention_of(text)
    return text
