"""The autoscaler: decides how many commands of a queue run on this host, and which begin, freeze or end.

Its own thread watches the host. The claimer calls :meth:`Autoscaler.admit` in the claimer's thread, since only that
thread claims. The rules are in domain/fleet/admission.py and domain/fleet/autoscaler.py.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from holdfast.domain.commands.command import COMMAND
from holdfast.domain.fleet.admission import Candidate, RunningCommand, choose, expected_memory
from holdfast.domain.fleet.autoscaler import (
    AutoscalerAction,
    AutoscalerDecision,
    HostCondition,
    ReliefAction,
    Strain,
    relieve,
    step,
)
from holdfast.domain.fleet.queue import Bounds
from holdfast.domain.jobs.job import HIGHEST_PRIORITY, EndReason, JobId, OnLost
from holdfast.domain.jobs.verdict import Done, Failed, Lost, Outcome
from holdfast.domain.quantities import format_size
from holdfast.errors import StoreBusy, StoreUnavailable
from holdfast.store.engine.changes import Change
from holdfast.store.fleet.autoscaler import ReadyCommand
from holdfast.worker import clock
from holdfast.worker.active_runs import Run, StopReason
from holdfast.worker.autoscaler.host import HostMonitor
from holdfast.worker.autoscaler.queue import AdmittedCommand, MemoryHistory, ScaledQueue, memory_cap
from holdfast.worker.options import WorkerSetup
from holdfast.worker.service import TickResult

log = logging.getLogger("holdfast")

#: Interval of readings of the host while a queue is autoscaled, and of the queue settings while none is.
WATCH_INTERVAL_S, IDLE_INTERVAL_S = 1.0, 2.0
#: A lower strain is recorded only after this time.
STRAIN_INTERVAL_S = 30.0
#: Failures count for this long.
FAILURE_WINDOW_S = 300.0


class Autoscaler:
    """Scales the commands of queues that have bounds; it does not touch other queues."""

    name = "autoscaler"
    wakes_on = Change.QUEUES

    def __init__(self, setup: WorkerSetup, *, changed: Callable[[], None]) -> None:
        store, options = setup.store, setup.options.autoscaler
        self.wake = threading.Event()
        self._store = store
        self._worker, self._served = setup.worker, setup.served
        self._kind = setup.served.kinds[COMMAND]
        self._slots = setup.options.slots
        self._memory_profiles = options.memory_profiles
        self._changed = changed
        self._host = HostMonitor(store, setup.worker, options.host_limits, read=options.host)
        self._history = MemoryHistory(store.autoscaler, store.views)
        #: The autoscaled queues; their commands begin only through :meth:`admit`. Replaced, never changed: threads read
        #: it without a lock.
        self.queues: dict[str, ScaledQueue] = {}
        self._commands: dict[JobId, AdmittedCommand] = {}
        self._decisions: deque[AutoscalerDecision] = deque(maxlen=1000)
        self._failures: deque[float] = deque(maxlen=1000)
        self._watched_at = self._refreshed_at = clock.now()
        self._recorded_strain = (Strain.EASY, 0.0)
        self._evicted_at = float("-inf")

    @property
    def stuck(self) -> int:
        """Number of jobs in line that can never begin here."""
        return sum(len(queue.stuck) for queue in self.queues.values())

    def admit(self) -> Run | None:
        """Claim the next command that fits, if any; the caller begins it."""
        if self._host.strain is not Strain.EASY:
            return None
        for queue in sorted(self.queues.values(), key=lambda queue: queue.admitted_at):
            queue.admitted_at = clock.now()
            if self._running(queue) < queue.slots.count and (run := self._admit(queue)) is not None:
                return run
        return None

    def _admit(self, queue: ScaledQueue) -> Run | None:
        line = self._line(queue)
        if queue.paused:
            line = [command for command in line if command.priority == HIGHEST_PRIORITY]
        running = self._all_running()
        choice = queue.choose(self._candidates(line), running, self._host.room(running))
        if choice is None:
            return None
        sent_at, duration = clock.now(), self._kind.options.lease
        lease = self._store.autoscaler.claim(self._worker, choice.job_id, queue=queue.queue, lease_duration=duration)
        if lease is None:
            return None
        run = Run(lease, self._kind, renewed_at=sent_at, lease_duration=duration)
        run.measured = True
        on_lost = next(command.on_lost for command in line if command.job_id == choice.job_id)
        command = AdmittedCommand(run, queue.queue, choice.expected, evictable=on_lost is OnLost.RETRY)
        self._commands[lease.job_id] = command
        return run

    def _line(self, queue: ScaledQueue) -> list[ReadyCommand]:
        build = self._served.build
        return self._store.autoscaler.queue_line(queue.queue, self._kind.name, limit=queue.window, build=build)

    def _candidates(self, line: Sequence[ReadyCommand]) -> list[Candidate]:
        """The commands in line with their expected memory."""
        profiles, declared, limit = self._history.of(line), self._memory_profiles, self._host.limit
        return [
            Candidate(
                command.job_id,
                expected_memory(profiles[command.job_id], cap=memory_cap(command), declared=declared, limit=limit),
            )
            for command in line
        ]

    def finished(self, run: Run, outcome: Outcome) -> None:
        """Learn the memory of a finished command that was admitted here."""
        command = self._commands.get(run.lease.job_id)
        if command is None or command.run is not run:
            return
        del self._commands[run.lease.job_id]
        if isinstance(outcome, Failed | Lost):
            self._failures.append(clock.now())
        full = isinstance(outcome, Done) or (isinstance(outcome, Failed) and outcome.reason == EndReason.OOM)
        cut_short = run.stop_reason is StopReason.EVICTED and (run.peak or 0) > command.expected.mean
        if run.peak is not None and (full or cut_short):
            self._history.add_peak(command.expected.name, run.peak)
            if not command.expected.known:
                self.wake.set()  # the next command of this name waits for the profile

    def on_notify(self) -> None:
        """Refresh the bounds of queues, which may have changed; at most once a second."""
        if clock.now() - self._refreshed_at > WATCH_INTERVAL_S:
            self.wake.set()

    def tick(self) -> TickResult:
        """Read the host, relieve it if needed, step the slots of each queue and record the decisions."""
        if not self.queues and not self._commands:
            self.refresh()
            return TickResult(IDLE_INTERVAL_S)
        self._watch()
        self._relieve()
        self.refresh()
        for queue in self.queues.values():
            self._step(queue)
        self._write()
        return TickResult(WATCH_INTERVAL_S, considered=len(self._commands))

    def refresh(self) -> None:
        self._refreshed_at = clock.now()
        settings = {queue.name: queue for queue in self._store.queues.list() if queue.bounds is not None}
        queues = {}
        for name, setting in settings.items():
            if self._served.serves(name) and setting.bounds is not None:
                queue = self.queues.get(name) or ScaledQueue(name, setting.bounds.least, self._decisions)
                queue.paused = setting.paused
                queue.bounds = Bounds(min(setting.bounds.least, self._slots), min(setting.bounds.most, self._slots))
                queues[name] = queue
        if queues and not self.queues:
            self._watch()
        before, self.queues = self.queues, queues
        if queues.keys() != before.keys():
            if not queues:
                self.thaw_all()
            self._publish(force=True)
            self._changed()

    def thaw_all(self) -> None:
        """Continue all frozen commands and write the new peaks; for the end of autoscaling here."""
        for command in list(self._commands.values()):
            if command.frozen_at is not None:
                self._apply(ReliefAction.THAW, command, "no queue is autoscaled here any more")
        self._history.flush()

    def _watch(self) -> None:
        now = clock.now()
        strain_changed = self._host.update()
        for command in list(self._commands.values()):
            if command.frozen_at is not None and command.run.timeout is not None:
                command.run.timeout += now - self._watched_at  # frozen time does not count towards the timeout
        self._watched_at = now
        if strain_changed:
            self._changed()
        self._record_strain(now)

    def _record_strain(self, now: float) -> None:
        """Record a higher strain at once and a lower one later: values near a threshold flap."""
        level, (last, at) = self._host.strain, self._recorded_strain
        if level > last or (level < last and now - at > STRAIN_INTERVAL_S):
            self._recorded_strain = (level, now)
            load = self._host.load
            why = f"memory is {level.name.lower()}: {format_size(load.used)} of {format_size(load.total)} are in use"
            self._decisions.extend(AutoscalerDecision(name, AutoscalerAction.STRAIN, why) for name in self.queues)

    def _relieve(self) -> None:
        now = clock.now()
        loads = [command.load(now) for command in list(self._commands.values()) if command.run.stop_reason is None]
        relief = relieve(self._host.strain, loads, since_eviction=now - self._evicted_at)
        if relief is not None and (command := self._commands.get(relief.job_id)) is not None:
            why = f"memory is {self._host.strain.name.lower()}, and it uses {format_size(command.run.resident)}"
            self._apply(relief.action, command, why)

    def _apply(self, action: ReliefAction, command: AdmittedCommand, why: str) -> None:
        run = command.run
        log.warning("autoscaler: %s job %d: %s", action.value, run.lease.job_id, why)
        if action is ReliefAction.EVICT:
            self._evicted_at = clock.now()
            run.stop(StopReason.EVICTED)
        elif run.freeze(frozen=action is ReliefAction.FREEZE):
            command.frozen_at = clock.now() if action is ReliefAction.FREEZE else None
        self._decisions.append(AutoscalerDecision(command.queue, AutoscalerAction(action.value), why, run.lease.job_id))

    def _step(self, queue: ScaledQueue) -> None:
        now = clock.now()
        full = self._running(queue) >= queue.slots.count
        requested = full and not queue.paused and self._host.strain is Strain.EASY and self._next_fits(queue)
        failures = sum(at > now - FAILURE_WINDOW_S for at in list(self._failures))
        bearing = HostCondition(self._host.load, swapping=self._host.swapping, failures=failures, requested=requested)
        before = queue.slots
        queue.slots, why = step(before, bearing, queue.bounds, now)
        if why is not None:
            action = AutoscalerAction.STEP_UP if queue.slots.count > before.count else AutoscalerAction.STEP_BACK
            self._decisions.append(AutoscalerDecision(queue.queue, action, why, slots=queue.slots.count))
            self._changed()

    def _next_fits(self, queue: ScaledQueue) -> bool:
        line = self._line(queue)
        candidates, running = self._candidates(line), self._all_running()
        return choose(candidates, running, self._host.room(running), waited={}).chosen is not None

    def _write(self) -> None:
        self._history.flush()
        decisions = [self._decisions.popleft() for _ in range(len(self._decisions))]
        try:
            self._store.autoscaler.record_decisions(self._worker, self._host.name, decisions)
        except (StoreUnavailable, StoreBusy):
            self._decisions.extendleft(reversed(decisions))
            raise
        self._publish(force=False)

    def _publish(self, *, force: bool) -> None:
        status = None
        if self.queues:
            frozen = [job_id for job_id, command in list(self._commands.items()) if command.frozen_at is not None]
            queues = [queue.status(self._running(queue)) for queue in self.queues.values()]
            status = self._host.status(self._all_running(), frozen=frozen, queues=queues)
        self._host.publish(status, force=force)

    def _running(self, queue: ScaledQueue) -> int:
        return sum(command.queue == queue.queue for command in list(self._commands.values()))

    def _all_running(self) -> list[RunningCommand]:
        return [RunningCommand(command.run.resident, command.expected) for command in list(self._commands.values())]
