"""Autoscaling: how many programs of a queue a host may run, by how it bears those that run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum, StrEnum

from msgspec import Struct

from holdfast.domain.jobs.job import JobId
from holdfast.errors import InvalidInput

#: Another slot so soon after the last, in seconds.
STEP_INTERVAL_S = 10.0
#: After a step up the host is watched for so long; after a step back no slot is added for so long. In seconds.
WATCH_S = 300.0
#: A host that was relieved shows it after so many seconds: load is a mean over a minute.
SETTLE_S = 60.0
#: Past this share of the cores a host is overloaded.
OVERLOAD_SHARE = 0.9
#: Past this share of time, in percent, in which somebody waits for a processor, too.
MAX_CPU_PRESSURE_PERCENT = 40.0
#: What is left of the slots when the load has become too much by itself.
STEP_BACK_FACTOR = 0.75
#: Failures have risen when they are more than twice those before the step, and at least so many more.
MIN_MORE_FAILURES = 3
#: The most slots that a queue can have.
MAX_SLOTS = 10_000

#: Where between the share and the whole host memory is tight, full, and spent.
TIGHT, FULL, SPENT = 0.5, 0.65, 0.75
#: So much of the time, in percent, all of the host waits for memory when that is tight, full, spent.
MEMORY_PRESSURES_PERCENT = (5.0, 10.0, 20.0)
#: One that was frozen so long, in seconds, without relief is evicted; between two evictions memory has time to come.
MAX_FROZEN_S, EVICTION_INTERVAL_S = 30.0, 10.0


class HostLoad(Struct, frozen=True):
    """What a host, or the container that we are in, has and bears. Memory in bytes, pressures in percent of the time.

    *load* is how many want a processor; *swapped* counts pages that had to be read back, since the start.
    """

    total: int
    used: int
    cores: float
    load: float = 0.0
    cpu_pressure: float | None = None
    memory_pressure: float | None = None
    swapped: int = 0


class Bounds(Struct, frozen=True):
    """The least and the most programs of a queue that a host runs."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least}-{self.most}"


def parse_bounds(text: str) -> Bounds | None:
    """Read ``1-8``; ``off`` is None.

    Raises:
        InvalidInput: It is neither.
    """
    if text == "off":
        return None
    found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    bounds = Bounds(int(found[1]), int(found[2])) if found else Bounds(0, 0)
    if not 1 <= bounds.least <= bounds.most <= MAX_SLOTS:
        raise InvalidInput(f"{text!r} is no range of slots", hint="Write it like 1-8, or off.")
    return bounds


class Slots(Struct, frozen=True):
    """How many programs may run, and how it came to that. Moments are seconds of a monotonic clock.

    *before* is the number before the last step up while the host is watched for it.
    """

    count: int
    changed_at: float
    rest_until: float = 0.0
    before: int | None = None
    failures: int = 0


class HostCondition(Struct, frozen=True):
    """How a host bears what runs: what a step depends on.

    *wanted*: all slots are in use, and the next in line would fit. *failures* are those of the last minutes.
    """

    host: HostLoad
    swapping: bool = False
    failures: int = 0
    requested: bool = False


def step(slots: Slots, bearing: HostCondition, bounds: Bounds, now: float) -> tuple[Slots, str | None]:
    """One slot more while the host bears it, fewer when it does not; the text says why, None: nothing changes.

    A step that is followed by trouble within five minutes is taken back. Trouble that comes by itself takes a
    quarter of the slots. Nothing is added for five minutes after either.
    """
    clamped = max(bounds.least, min(bounds.most, slots.count))
    if clamped != slots.count:
        return Slots(clamped, now), f"the queue runs {bounds} programs here"
    watched = slots.before is not None and now - slots.changed_at < WATCH_S
    trouble = _trouble(bearing, slots, watched=watched)
    if trouble is not None:
        if slots.count <= bounds.least or (not watched and now - slots.changed_at < SETTLE_S):
            return slots, None
        back = slots.before if watched and slots.before is not None else int(slots.count * STEP_BACK_FACTOR)
        return Slots(max(bounds.least, back), now, rest_until=now + WATCH_S), trouble
    if (
        bearing.requested
        and slots.count < bounds.most
        and now >= max(slots.rest_until, slots.changed_at + STEP_INTERVAL_S)
    ):
        up = Slots(slots.count + 1, now, before=slots.count, failures=bearing.failures)
        return up, "all slots are in use, and the host bears it"
    return slots, None


def _trouble(bearing: HostCondition, slots: Slots, *, watched: bool) -> str | None:
    host = bearing.host
    if bearing.swapping:
        return "the host is swapping"
    if host.cpu_pressure is not None and host.cpu_pressure > MAX_CPU_PRESSURE_PERCENT:
        return f"somebody waits for a processor {host.cpu_pressure:.0f} % of the time"
    if host.load > OVERLOAD_SHARE * host.cores and (watched or host.cpu_pressure is None):
        return f"the load is {host.load:.1f} on {host.cores:g} cores"
    if watched and bearing.failures >= max(2 * slots.failures, slots.failures + MIN_MORE_FAILURES):
        return f"{bearing.failures} runs failed in the last minutes, {slots.failures} before the last step"
    return None


# -- memory ----------------------------------------------------------------------------------


class Strain(IntEnum):
    """How short of memory a host is: nothing begins when it is tight; when full one is frozen; when spent evicted."""

    EASY = 0
    TIGHT = 1
    FULL = 2
    SPENT = 3


def strain(host: HostLoad, limit: int) -> Strain:
    """How short of memory a host is, of which programs may take *limit* bytes."""
    share = min(limit / host.total, 1.0)
    used = host.used / host.total
    found = Strain.EASY
    for level, line, pressure in zip(Strain, (0.0, TIGHT, FULL, SPENT), (0.0, *MEMORY_PRESSURES_PERCENT), strict=True):
        pressed = host.memory_pressure is not None and host.memory_pressure >= pressure > 0
        if level and (pressed or used > share + line * (1 - share)):
            found = level
    return found


class RunningLoad(Struct, frozen=True):
    """A program that may be stopped for the sake of others: the seconds it has worked and has been frozen.

    One that is not *evictable* must not run twice: it is left alone.
    """

    job_id: JobId
    work: float
    evictable: bool = True
    frozen: float | None = None


class ReliefAction(StrEnum):
    FREEZE = "freeze"
    THAW = "thaw"
    EVICT = "evict"


class Relief(Struct, frozen=True):
    """What to do about one program."""

    act: ReliefAction
    job_id: JobId


def relieve(level: Strain, programs: Sequence[RunningLoad], *, since_eviction: float) -> Relief | None:
    """What to do about a shortage: freeze the program that has worked least; evict it when that does not help.

    One goes on whatever happens: a program that is alone would be evicted again and again. When memory is easy
    again the frozen go on, first the one that has worked most.
    """
    frozen = [program for program in programs if program.frozen is not None]
    if level is Strain.EASY or len(frozen) == len(programs) > 0:
        most = max(frozen, key=lambda program: program.work, default=None)
        return None if most is None else Relief(ReliefAction.THAW, most.job_id)
    evictable = [program for program in programs if program.evictable]
    least = min(evictable, key=lambda program: (program.frozen is None, program.work), default=None)
    if level is Strain.TIGHT or least is None or len(programs) < 2:
        return None
    if least.frozen is None:
        return Relief(ReliefAction.FREEZE, least.job_id)
    if since_eviction >= EVICTION_INTERVAL_S and (level is Strain.SPENT or least.frozen >= MAX_FROZEN_S):
        return Relief(ReliefAction.EVICT, least.job_id)
    return None
