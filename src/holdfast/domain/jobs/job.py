"""Jobs: states, transitions, leases."""

# Without the import of annotations from __future__: readers of rows would compile each of them from its text.

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import NewType, cast

from msgspec import Struct

JobId = NewType("JobId", int)
Token = NewType("Token", int)
WorkerId = NewType("WorkerId", str)
#: The kinds of Holdfast's own jobs begin with it. People do not enqueue them.
INTERNAL_PREFIX = "holdfast."
#: Begins the line that marks a success after the timeout.
OVERDUE = "overdue: "
#: The kind of jobs that run commands.
COMMAND = "command"
#: A job of this priority starts although its queue is paused; the claims have this number too. Callbacks have it.
HIGHEST_PRIORITY = 2**31 - 1
LOWEST_PRIORITY = -(2**31)
#: The kind of jobs that report the end of a plan to a URL, and its secret field: who knows the URL can report too.
PING, PING_SECRETS = "holdfast.ping", ("url",)


def ids_from(first: JobId, count: int) -> Sequence[JobId]:
    """Consecutive ids."""
    return cast("Sequence[JobId]", range(first, first + count))


class State(StrEnum):
    """The state of a job."""

    HELD = "held"
    WAITING = "waiting"
    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        return self in FINISHED


FINISHED = frozenset({State.DONE, State.DEAD, State.CANCELLED})
LIVE = frozenset(State) - FINISHED

#: Every legal transition. The schema repeats the table as constraints; a test compares the two.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.HELD: frozenset({State.WAITING, State.SCHEDULED, State.READY, State.CANCELLED}),
    State.WAITING: frozenset({State.SCHEDULED, State.READY, State.HELD, State.CANCELLED}),
    State.SCHEDULED: frozenset({State.READY, State.HELD, State.CANCELLED}),
    State.READY: frozenset({State.RUNNING, State.SCHEDULED, State.HELD, State.CANCELLED}),
    State.RUNNING: frozenset({State.READY, State.SCHEDULED, State.HELD, *FINISHED}),
    State.DONE: frozenset({State.READY, State.WAITING}),  # a command that a person restarts
    State.DEAD: frozenset({State.READY, State.WAITING}),
    State.CANCELLED: frozenset({State.READY, State.WAITING}),
}


class OnLost(StrEnum):
    """What to do with a run whose holder was lost: its effect may have happened."""

    RETRY = "retry"
    DEAD = "dead"
    HOLD = "hold"


class ControlRequest(StrEnum):
    """A request of a person to the holder of a running job."""

    CANCEL = "cancel"
    PAUSE = "pause"


class WorkerRequest(StrEnum):
    """A request of a person to a worker."""

    #: Claim no more jobs; running jobs continue.
    QUIET = "quiet"
    #: Stop, as after a first signal.
    STOP = "stop"


class EndReason(StrEnum):
    """Why a job or a run ended. Commands add ``exit_N`` and ``signal_N``."""

    DONE = "done"
    HANDLER_ERROR = "handler_error"
    RUN_TIMEOUT = "run_timeout"
    CANCELLED = "cancelled"
    RELEASED = "released"
    LEASE_LOST = "lease_lost"
    CRASHED = "crashed"
    OOM = "oom"
    CANNOT_START = "cannot_start"
    UNREADABLE = "unreadable"
    DEPENDENCY_FAILED = "dependency_failed"


#: The highest level of suspicion. A poison suspect of this level runs alone.
MAX_LOSSES = 3


class Job(Struct, frozen=True):
    """All columns of one job. JSON values are text."""

    id: JobId
    kind: str
    queue: str
    state: State
    priority: int
    due_at: datetime
    label: str | None
    tags: str | None
    key: str | None
    payload: str
    parent_id: JobId | None
    actor: str
    created_at: datetime
    attempts: int
    max_attempts: int | None
    crashes: int
    max_crashes: int | None
    on_lost: OnLost
    retry: str | None
    after_when: str | None
    after_failed: str | None
    token: Token
    losses: int
    requested: ControlRequest | None
    worker: WorkerId | None
    claimed_at: datetime | None
    started_at: datetime | None
    lease_expires_at: datetime | None
    note: str | None
    finished_at: datetime | None
    reason: str | None
    error: str | None
    result: str | None
    progress_done: int | None
    progress_total: int | None
    progress_message: str | None
    checkpoint: str | None
    #: The version of the kind that wrote the payload.
    kind_version: int = 1
    #: The only build whose workers may claim it; empty for every build.
    reader: str = ""
    #: The builds that could not read the payload, as JSON.
    refusals: str | None = None
    #: The progress when the present run began.
    progress_base: int | None = None
    #: The longest run in seconds; 0: no limit; None: that of the kind.
    timeout: float | None = None

    @property
    def unreadable(self) -> bool:
        """Whether it is held because no live worker can read its payload."""
        return self.state is State.HELD and not self.reader and self.refusals is not None

    @property
    def tries(self) -> int:
        """The number of attempts, with the running one, whose start may not be recorded yet."""
        return self.attempts + (self.state is State.RUNNING and self.started_at is None)

    def progress_rate(self, now: datetime) -> float | None:
        """The progress per second of the present run, without that of earlier runs; None if it is not known.

        A run whose lease has expired makes none.
        """
        since = self.claimed_at or self.started_at  # a start is recorded about a second after it
        if self.state is not State.RUNNING or since is None or self.progress_done is None:
            return None
        if self.lease_expires_at is not None and self.lease_expires_at < now:
            return None
        made, elapsed = self.progress_done - (self.progress_base or 0), (now - since).total_seconds()
        return made / elapsed if made > 0 and elapsed > 0 else None

    @property
    def overdue(self) -> str | None:
        """How late a job succeeded whose handler could not be stopped at its timeout; None: it was in time."""
        if self.state is not State.DONE or self.error is None:
            return None
        lines = self.error.splitlines()
        return next((line.removeprefix(OVERDUE) for line in lines if line.startswith(OVERDUE)), None)

    @property
    def claimed(self) -> bool:
        """Whether a worker holds it, and no start is recorded: it waits for a slot, or began within the last second."""
        return self.state is State.RUNNING and self.started_at is None


class Lease(Struct, frozen=True, gc=False):
    """The right to run one job until the lease expires, with the data of the run."""

    job_id: JobId
    token: Token
    kind: str
    queue: str
    payload: str
    attempt: int
    no_prefetch: bool
    losses: int
    priority: int
    due_at: datetime
    checkpoint: str | None
    kind_version: int = 1
    #: The longest run in seconds; 0: no limit; None: that of the kind.
    timeout: float | None = None
    #: The plan that the job carries out, as JSON.
    plan: str | None = None
    #: Its holder. A token alone may come again after a failover that lost the last commits.
    worker: WorkerId = WorkerId("")

    @property
    def fence(self) -> dict[str, object]:
        """What every write of the holder names: it changes a row only if the row agrees."""
        return {"id": self.job_id, "token": self.token, "worker": self.worker}

    @property
    def starts_recorded(self) -> bool:
        """Whether the start is recorded before the run begins, so that a loss of the worker always costs an attempt."""
        return self.no_prefetch or self.losses >= MAX_LOSSES

    @property
    def slot_only(self) -> bool:
        """Whether it is claimed for a free slot alone. Commands are claimed ahead while they are short."""
        return (self.no_prefetch and self.kind != COMMAND) or self.losses > 0


class RunningJob(Struct, frozen=True):
    """A job that runs now, and where."""

    id: JobId
    kind: str
    queue: str
    worker: WorkerId
    claimed_at: datetime
    started_at: datetime | None
    lease_expires_at: datetime
    progress_done: int | None
    progress_total: int | None
