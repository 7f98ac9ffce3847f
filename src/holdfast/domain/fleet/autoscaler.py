"""The autoscaler: the number of commands that a host may run, the command to stop when memory is short."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import IntEnum, StrEnum

import msgspec
from msgspec import Struct

from holdfast.domain.fleet.admission import Refusal
from holdfast.domain.fleet.queue import Bounds
from holdfast.domain.jobs.job import JobId
from holdfast.domain.quantities import format_size

#: Minimum time between two added slots.
STEP_INTERVAL_S = 10.0
#: After a step up, trouble within this time takes it back; after a step back, no slot is added for this time.
WATCH_S = 300.0
#: Time until a step back shows: load is an average over a minute.
SETTLE_S = 60.0
#: A host is overloaded when its load exceeds this share of its cores.
OVERLOAD_SHARE = 0.9
#: A host is overloaded when processes wait for a CPU for more than this share of the time.
MAX_CPU_PRESSURE_PERCENT = 40.0
#: Trouble without a recent step reduces the slots to this share.
STEP_BACK_FACTOR = 0.75
#: A step caused failures if they have doubled since, and increased by at least this number.
MIN_MORE_FAILURES = 3

#: Memory is tight, full or spent at these positions between the limit (0) and the whole host (1).
TIGHT, FULL, SPENT = 0.5, 0.65, 0.75
#: Or when all processes wait for memory for this share of the time.
MEMORY_PRESSURES_PERCENT = (5.0, 10.0, 20.0)
#: A command that stays frozen is evicted after MAX_FROZEN_S; the interval lets an eviction take effect.
MAX_FROZEN_S, EVICTION_INTERVAL_S = 30.0, 10.0


class HostLoad(Struct, frozen=True):
    """The size and the load of a host or container. Memory in bytes, pressures in percent of the time.

    *load* is the number of runnable processes; *swapped* counts pages swapped in since boot.
    """

    total: int
    used: int
    cores: float
    load: float = 0.0
    cpu_pressure: float | None = None
    memory_pressure: float | None = None
    swapped: int = 0


class Slots(Struct, frozen=True):
    """The slots of a queue, and their last change. Times are seconds of a monotonic clock.

    *before* is the count before the last step up, while that step may be taken back.
    """

    count: int
    changed_at: float
    rest_until: float = 0.0
    before: int | None = None
    failures: int = 0


class HostCondition(Struct, frozen=True):
    """The condition of a host, which decides the next step.

    *requested*: all slots are in use, and the next command would fit. *failures* are those of the last minutes.
    """

    host: HostLoad
    swapping: bool = False
    failures: int = 0
    requested: bool = False


def step(slots: Slots, condition: HostCondition, bounds: Bounds, now: float) -> tuple[Slots, str | None]:
    """Add one slot while the host has capacity, or reduce them; the text is the reason, None: no change.

    Trouble within five minutes of a step takes it back. Other trouble removes a quarter of the slots.
    After either, no slot is added for five minutes.
    """
    clamped = max(bounds.least, min(bounds.most, slots.count))
    if clamped != slots.count:
        return Slots(clamped, now), f"the queue runs {bounds} commands here"
    watched = slots.before is not None and now - slots.changed_at < WATCH_S
    trouble = _trouble(condition, slots, watched=watched)
    if trouble is not None:
        if slots.count <= bounds.least or (not watched and now - slots.changed_at < SETTLE_S):
            return slots, None
        back = slots.before if watched and slots.before is not None else int(slots.count * STEP_BACK_FACTOR)
        return Slots(max(bounds.least, back), now, rest_until=now + WATCH_S), trouble
    rested = now >= max(slots.rest_until, slots.changed_at + STEP_INTERVAL_S)
    if condition.requested and slots.count < bounds.most and rested:
        up = Slots(slots.count + 1, now, before=slots.count, failures=condition.failures)
        return up, "all slots are in use, and the host has room"
    return slots, None


def _trouble(condition: HostCondition, slots: Slots, *, watched: bool) -> str | None:
    host = condition.host
    if condition.swapping:
        return "the host is swapping"
    if host.cpu_pressure is not None and host.cpu_pressure > MAX_CPU_PRESSURE_PERCENT:
        return f"processes wait for a processor {host.cpu_pressure:.0f} % of the time"
    if host.load > OVERLOAD_SHARE * host.cores and (watched or host.cpu_pressure is None):
        return f"the load is {host.load:.1f} on {host.cores:g} cores"
    if watched and condition.failures >= max(2 * slots.failures, slots.failures + MIN_MORE_FAILURES):
        return f"{condition.failures} runs failed in the last minutes, {slots.failures} before the last step"
    return None


class Strain(IntEnum):
    """The memory shortage of a host. TIGHT: no command starts. FULL: one is frozen. SPENT: one is evicted."""

    EASY = 0
    TIGHT = 1
    FULL = 2
    SPENT = 3


def strain(host: HostLoad, limit: int) -> Strain:
    """The memory shortage of a host; commands may use *limit* bytes of it."""
    share = min(limit / host.total, 1.0)
    used = host.used / host.total
    worst = Strain.EASY
    for level, line, pressure in zip(Strain, (0.0, TIGHT, FULL, SPENT), (0.0, *MEMORY_PRESSURES_PERCENT), strict=True):
        pressed = host.memory_pressure is not None and host.memory_pressure >= pressure > 0
        if level and (pressed or used > share + line * (1 - share)):
            worst = level
    return worst


class RunningLoad(Struct, frozen=True):
    """A running command. *work* and *frozen* are seconds.

    A command that is not *evictable* must not run twice, so it is neither frozen nor evicted.
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
    """An action on one command."""

    action: ReliefAction
    job_id: JobId


def relieve(level: Strain, commands: Sequence[RunningLoad], *, since_eviction: float) -> Relief | None:
    """Freeze the command with the least work; evict it if that does not help.

    The last command always continues: evicting it would repeat forever. When memory is easy again, the frozen
    command with the most work is thawed first.
    """
    frozen = [command for command in commands if command.frozen is not None]
    if level is Strain.EASY or len(frozen) == len(commands) > 0:
        most = max(frozen, key=lambda command: command.work, default=None)
        return None if most is None else Relief(ReliefAction.THAW, most.job_id)
    evictable = [command for command in commands if command.evictable]
    least = min(evictable, key=lambda command: (command.frozen is None, command.work), default=None)
    if level is Strain.TIGHT or least is None or len(commands) < 2:
        return None
    if least.frozen is None:
        return Relief(ReliefAction.FREEZE, least.job_id)
    if since_eviction >= EVICTION_INTERVAL_S and (level is Strain.SPENT or least.frozen >= MAX_FROZEN_S):
        return Relief(ReliefAction.EVICT, least.job_id)
    return None


class BlockedJob(Struct, frozen=True):
    """A ready job that is not admitted, and the reason."""

    job_id: JobId
    reason: Refusal
    text: str


class QueueStatus(Struct, frozen=True):
    """One queue on one host: its slots, its running commands, its blocked jobs."""

    queue: str
    least: int
    most: int
    slots: int
    running: int
    blocked: list[BlockedJob] = []


class AutoscalerStatus(Struct, frozen=True, kw_only=True):
    """The autoscaler of a worker: its host, the memory for commands, its queues. Sizes in bytes.

    *resident* is the memory of its commands now, *forecast* at their peaks. *strain* is the memory shortage.
    """

    total: int
    used: int
    limit: int
    room: int
    resident: int
    forecast: int
    cores: float
    load: float
    cpu_pressure: float | None
    memory_pressure: float | None
    strain: str
    frozen: list[JobId]
    lanes: list[QueueStatus]

    def dumps(self) -> str:
        return msgspec.json.encode(self).decode()


def load_autoscaler_status(text: str | None) -> AutoscalerStatus | None:
    """The inverse of :meth:`AutoscalerStatus.dumps`; None for the format of a newer worker."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=AutoscalerStatus)
    except msgspec.DecodeError:
        return None


class AutoscalerAction(StrEnum):
    """The action of a decision."""

    STEP_UP = "step_up"
    STEP_BACK = "step_back"
    BLOCKED = "blocked"
    NEVER_FITS = "never_fits"
    STRAIN = "strain"
    FREEZE = "freeze"
    THAW = "thaw"
    EVICT = "evict"


class AutoscalerDecision(Struct, frozen=True):
    """A decision about a queue or one of its jobs."""

    queue: str
    action: AutoscalerAction
    text: str
    job_id: JobId | None = None
    slots: int | None = None


class RecordedDecision(Struct, frozen=True):
    """A decision with its time, host and worker."""

    at: datetime
    queue: str
    host: str
    worker: str
    action: AutoscalerAction
    job_id: JobId | None
    slots: int | None
    text: str


def refusals(job_id: JobId, queue: str, statuses: Sequence[tuple[str, AutoscalerStatus]]) -> list[str]:
    """The reasons of all hosts not to start a ready job; empty if one host would start it."""
    reasons = []
    for host, status in statuses:
        for lane in status.lanes:
            if lane.queue == queue:
                text = _refusal(job_id, lane, status)
                if text is None:
                    return []
                reasons.append(f"host {host} does not start it: {text}")
    return reasons


def _refusal(job_id: JobId, lane: QueueStatus, status: AutoscalerStatus) -> str | None:
    text = next((blocked.text for blocked in lane.blocked if blocked.job_id == job_id), None)
    if text is not None:
        return text
    if status.strain != "easy":
        used = f"{format_size(status.used)} of {format_size(status.total)}"
        return f"its memory is {status.strain} ({used} in use)"
    if lane.running >= lane.slots:
        return f"it runs {lane.running} commands of the queue; the autoscaler allows {lane.slots} (up to {lane.most})"
    return None
