"""A queue that is autoscaled on this host: its slots, its commands in line, and their memory history."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from holdfast.domain.commands.command import COMMAND, Command, load_command
from holdfast.domain.fleet import admission
from holdfast.domain.fleet.admission import Candidate, MemoryRoom, Profile, Refusal, RunningCommand
from holdfast.domain.fleet.autoscaler import (
    AutoscalerAction,
    AutoscalerDecision,
    BlockedJob,
    QueueStatus,
    RunningLoad,
    Slots,
)
from holdfast.domain.fleet.queue import Bounds
from holdfast.domain.jobs.job import JobId, State
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import HoldfastError, StoreBusy, StoreUnavailable
from holdfast.store.fleet.autoscaler import AutoscalerStore, ReadyCommand
from holdfast.store.jobs.queries import JobQueries
from holdfast.worker import clock
from holdfast.worker.active_runs import Run

#: Number of commands in line that are considered, beside those that can never begin.
WINDOW = 50
#: Number of refusals in the published status.
MAX_REFUSALS = 20


class AdmittedCommand(Struct):
    """A command that the autoscaler has started."""

    run: Run
    queue: str
    expected: admission.ExpectedMemory
    evictable: bool
    frozen_at: float | None = None

    def load(self, now: float) -> RunningLoad:
        """Its work so far, which decides the next command to be frozen or evicted."""
        frozen = None if self.frozen_at is None else now - self.frozen_at
        worked = self.run.under_way_for(now) - (frozen or 0.0)
        return RunningLoad(self.run.lease.job_id, worked, evictable=self.evictable, frozen=frozen)


class ScaledQueue:
    """An autoscaled queue. It appends its decisions to *decisions*."""

    def __init__(self, queue: str, least: int, decisions: deque[AutoscalerDecision]) -> None:
        self.queue = queue
        self.paused = False
        self.admitted_at = 0.0
        self.bounds = Bounds(least, least)
        self.slots = Slots(least, clock.now())
        #: Jobs that can never begin here.
        self.stuck: frozenset[JobId] = frozenset()
        self._blocked: list[BlockedJob] = []
        #: The first command in line, and since when it is the first.
        self._head: tuple[JobId, float] | None = None
        self._reported: set[JobId] = set()
        self._decisions = decisions

    @property
    def window(self) -> int:
        return WINDOW + len(self.stuck)

    def choose(
        self, line: Sequence[Candidate], running: Sequence[RunningCommand], room: MemoryRoom
    ) -> Candidate | None:
        """The command that may begin, if any; the refusals of the others are kept for the status."""
        now = clock.now()
        waited = {} if self._head is None else {self._head[0]: now - self._head[1]}
        choice = admission.choose(line, running, room, waited=waited)
        will_take = {candidate.job_id: candidate.expected for candidate in line}
        self._blocked = [
            BlockedJob(job_id, reason, admission.describe_refusal(reason, will_take[job_id], running, room))
            for job_id, reason in choice.refused.items()
        ]
        self.stuck = frozenset(blocked.job_id for blocked in self._blocked if blocked.reason is Refusal.NEVER)
        head = next((blocked.job_id for blocked in self._blocked if blocked.reason is not Refusal.NEVER), None)
        if self._head is None or self._head[0] != head:
            self._head = None if head is None else (head, now)
        self._record(head)
        return choice.chosen

    def _record(self, head: JobId | None) -> None:
        """Record refusals of the first in line and of those that can never begin, once each."""
        job_ids = {head, *self.stuck}
        refused = [blocked for blocked in self._blocked if blocked.job_id in job_ids]
        for blocked in refused:
            if blocked.job_id not in self._reported:
                action = AutoscalerAction.NEVER_FITS if blocked.reason is Refusal.NEVER else AutoscalerAction.BLOCKED
                self._decisions.append(AutoscalerDecision(self.queue, action, blocked.text, blocked.job_id))
        self._reported = {blocked.job_id for blocked in refused}

    def status(self, running: int) -> QueueStatus:
        bounds, slots = self.bounds, self.slots.count
        refused = [blocked for blocked in self._blocked if blocked.reason is Refusal.NEVER or running < slots]
        return QueueStatus(self.queue, bounds.least, bounds.most, slots, running, refused[:MAX_REFUSALS])


def memory_cap(ready: ReadyCommand) -> int | None:
    command = _command_of(ready)
    return None if command is None else command.memory


def _command_of(ready: ReadyCommand) -> Command | None:
    """The command of a job; an unreadable payload fails when it runs, not here."""
    try:
        return load_command(ready.payload)
    except (msgspec.DecodeError, HoldfastError):
        return None


#: Profiles are read again after this time, since other hosts learn too.
MAX_AGE_S = 5.0
#: Number of finished runs of a label that are read when its profile is empty.
EARLIER_RUNS = 20


class _Result(Struct):
    peak_bytes: int | None = None


class MemoryHistory:
    """Profiles by name. Any thread may add a peak; :meth:`flush` writes them."""

    def __init__(self, store: AutoscalerStore, views: JobQueries) -> None:
        self._store = store
        self._views = views
        #: Profiles with the time of their reading.
        self._profiles: dict[str, tuple[float, Profile]] = {}
        #: Names whose earlier runs were read already.
        self._searched: set[str] = set()
        self._peaks: list[tuple[str, int]] = []

    def of(self, line: Sequence[ReadyCommand]) -> dict[JobId, Profile]:
        names = {ready.job_id: _profile_name(ready) for ready in line}
        now = clock.now()
        profiles = {name: item for name, item in self._profiles.items() if now - item[0] < MAX_AGE_S}
        missing = sorted(set(names.values()) - profiles.keys())
        self._profiles = profiles = profiles | {name: (now, profile) for name, profile in self._read(missing).items()}
        return {job_id: profiles[name][1] for job_id, name in names.items()}

    def add_peak(self, name: str, peak: int) -> None:
        self._peaks.append((name, peak))

    def flush(self) -> None:
        """Write new peaks; their profiles are read again on the next use."""
        peaks, self._peaks = self._peaks, []
        if peaks:
            try:
                self._store.learn(peaks)
            except (StoreUnavailable, StoreBusy):
                self._peaks = peaks + self._peaks
                raise
            changed = {name for name, _ in peaks}
            self._profiles = {name: item for name, item in self._profiles.items() if name not in changed}

    def _read(self, names: Sequence[str]) -> dict[str, Profile]:
        profiles = self._store.profiles(names)
        empty = [name for name, profile in profiles.items() if not profile.samples and name not in self._searched]
        self._searched.update(empty)
        peaks = [(name, peak) for name in empty for peak in self._earlier_peaks(name)]
        if not peaks:
            return profiles
        self._store.learn(peaks)
        return self._store.profiles(names)

    def _earlier_peaks(self, label: str) -> list[int]:
        """Peaks of commands with this label that ran under a cap before the queue was autoscaled."""
        if "*" in label:
            return []
        done = Selector(labels=(label,), kinds=(COMMAND,), states=(State.DONE,))
        peaks = [_peak(job.result) for job in self._views.page(done, limit=EARLIER_RUNS).jobs]
        return [peak for peak in reversed(peaks) if peak]


def _profile_name(ready: ReadyCommand) -> str:
    command = _command_of(ready)
    return admission.profile_name(ready.label, ("unreadable",) if command is None else command.argv)


def _peak(result: str | None) -> int | None:
    try:
        return None if result is None else msgspec.json.decode(result, type=_Result).peak_bytes
    except msgspec.DecodeError:
        return None  # the result was too large to be kept
