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
    #: Audit entries, and tokens since they were revoked.
    audit: timedelta = timedelta(days=365)
    #: Workers since their last heartbeat, at least a day. Attempts keep the id of a worker, which names its host.
    workers: timedelta = timedelta(days=30)
    #: Kinds that no application publishes any more, unless a live job, a live worker or a schedule has them.
    kinds: timedelta = timedelta(days=90)
    #: Responses to requests with an idempotency key.
    responses: timedelta = timedelta(hours=24)

    @property
    def lost_workers(self) -> timedelta:
        """How long the row of a worker stays: people see lost workers for a day."""
        return max(self.workers, LOST_WORKERS_KEPT) if self.workers else ZERO


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
    return RetentionAges({name: _age_text(age) for name, age in structs.asdict(Retention()).items()})


def _age_text(age: timedelta) -> str:
    hours = age // timedelta(hours=1)
    if not hours:
        return "0"
    return f"{hours // 24}d" if hours > 24 else f"{hours}h"


def checked_ages(ages: object) -> RetentionAges:
    """Ages from a configuration file or a variable; raises like :func:`retention_of`."""
    if not isinstance(ages, dict):
        raise InvalidInput(f"a table of names and times is expected, not {ages!r}")
    text = RetentionAges({str(name): str(age) for name, age in ages.items()})
    retention_of(text)
    return text
