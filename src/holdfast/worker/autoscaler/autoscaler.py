"""The autoscaler: how many programs of a queue run on this host, which of them begin, and which must give way.

It moves in a thread of its own, where it watches the host. Who begins is asked by the claimer, in the claimer's thread,
since only that one claims. The rules are in domain/fleet/admission.py and domain/fleet/autoscaler.py.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from holdfast.domain.fleet.admission import MemoryRoom, RunningCommand, choose, forecast, host_limit, limit_for, room
from holdfast.domain.fleet.autoscaler import Bearing, HostLoad, ReliefAction, Strain, relieve, step, strain
from holdfast.domain.fleet.autoscaler_state import (
    AutoscalerAction,
    AutoscalerDecision,
    AutoscalerStatus,
    load_autoscaler_status,
)
from holdfast.domain.jobs.job import EndReason, JobId, WorkerId
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.verdict import Done, Failed, Lost, Outcome
from holdfast.domain.text import say_size
from holdfast.errors import StoreUnavailable
from holdfast.store import Store
from holdfast.worker import clock
from holdfast.worker.active_runs import Run, StopReason
from holdfast.worker.autoscaler.history import MemoryHistory
from holdfast.worker.autoscaler.host import read_host
from holdfast.worker.autoscaler.queue import AdmittedCommand, ScaledQueue
from holdfast.worker.service import TickResult

log = logging.getLogger("holdfast")

#: How often the host is looked at while there is something to scale, and the queues while there is not, in seconds.
WATCH_EVERY, LOOK_EVERY = 1.0, 2.0
#: How often others are told, when nothing changes, in seconds.
TELL_EVERY = 10.0
#: Pages that come back from swap between two looks: more than these is swapping.
SWAPPING = 256
#: That memory is less short than before is written down after so many seconds.
STRAIN_EVERY = 30.0
#: Failures of so many seconds count.
LATELY = 300.0


class AutoscalerOptions(Struct, frozen=True, kw_only=True):
    """What people have said about programs and hosts: sizes in bytes by label, limits by the name of the host."""

    memory_profiles: dict[str, int] = {}
    host_limits: dict[str, str] = {}
    host: Callable[[], HostLoad] = read_host


class Autoscaler:
    """Scales the programs of queues that are set so; the others it does not touch."""

    name = "autoscaler"

    def __init__(
        self,
        store: Store,
        worker: WorkerId,
        kind: Kind,
        *,
        queues: Sequence[str],
        slots: int,
        options: AutoscalerOptions,
        changed: Callable[[], None],
    ) -> None:
        self.bell = threading.Event()
        self._store = store
        self._worker = worker
        self._kind = kind
        self._served = tuple(queues)
        self._slots = slots
        self._options = options
        self._changed = changed
        self._hostname = socket.gethostname()
        self._profiles = MemoryHistory(store.autoscaler, store.views)
        #: Replaced, never changed: threads read it without a lock.
        self._lanes: dict[str, ScaledQueue] = {}
        self._programs: dict[JobId, AdmittedCommand] = {}
        self._decisions: deque[AutoscalerDecision] = deque(maxlen=1000)
        self._failures: deque[float] = deque(maxlen=1000)
        self._host = HostLoad(total=1, used=0, cores=1)
        self._looked_at = self._refreshed_at = clock.now()
        self._swapping = False
        self._strain = Strain.EASY
        self._strain_told = (Strain.EASY, 0.0)
        self._promised = 0
        self._evicted_at = float("-inf")
        self._told: tuple[float, AutoscalerStatus | None] = (float("-inf"), None)

    # -- what the claimer asks ---------------------------------------------------------------

    @property
    def queues(self) -> Mapping[str, ScaledQueue]:
        """The queues that are scaled: their programs begin only through :meth:`admit`."""
        return self._lanes

    @property
    def stuck(self) -> int:
        """How many jobs in line can never begin here."""
        return sum(len(lane.stuck) for lane in self._lanes.values())

    def admit(self, *, poison_suspects: int) -> Run | None:
        """Claim the next program that fits, if there is one; it is to begin at once.

        While one that may have killed its worker runs, no second such begins.
        """
        if self._strain is not Strain.EASY:
            return None
        for lane in sorted(self._lanes.values(), key=lambda lane: lane.asked_at):
            lane.asked_at = clock.now()
            if not lane.paused and self._running(lane) < lane.slots.count:
                run = self._admit(lane, poison_suspects)
                if run is not None:
                    return run
        return None

    def _admit(self, lane: ScaledQueue, poison_suspects: int) -> Run | None:
        line = self._store.autoscaler.line(lane.queue, self._kind.name, limit=lane.window)
        known = self._profiles.of(line)
        candidates = lane.candidates(
            line, known, self._options.memory_profiles, self._limit, poison_suspects=poison_suspects
        )
        running = self._all_running()
        choice = lane.choose(candidates, running, self._room(running))
        self._decisions.extend(lane.news())
        if choice is None:
            return None
        dated = clock.now()
        lease_duration = self._kind.options.lease
        lease = self._store.autoscaler.claim(
            self._worker, choice.job_id, queue=lane.queue, lease_duration=lease_duration
        )
        if lease is None:
            return None
        run = Run(lease, self._kind, dated=dated, lease_duration=lease_duration)
        run.measured = True
        ready = next(each for each in line if each.job_id == choice.job_id)
        self._programs[lease.job_id] = AdmittedCommand(run, lane.queue, choice.expected, on_lost=ready.on_lost)
        return run

    def finished(self, run: Run, outcome: Outcome) -> None:
        """A program has ended: what it took is learned. Runs of queues that are not scaled are none of ours."""
        program = self._programs.get(run.lease.job_id)
        if program is None or program.run is not run:
            return
        del self._programs[run.lease.job_id]
        if isinstance(outcome, Failed | Lost):
            self._failures.append(clock.now())
        full = isinstance(outcome, Done) or (isinstance(outcome, Failed) and outcome.reason == EndReason.OOM)
        cut_short = run.stop_reason is StopReason.EVICTED and (run.peak or 0) > program.expected.mean
        if run.peak is not None and (full or cut_short):
            self._profiles.measured(program.expected.name, run.peak)
            if not program.expected.known:
                self.bell.set()  # the next of its name waits for this

    def rung(self) -> None:
        """Something may have changed: perhaps a queue is scaled now. Once a second is enough."""
        if clock.now() - self._refreshed_at > WATCH_EVERY:
            self.bell.set()

    # -- what moves --------------------------------------------------------------------------

    def tick(self) -> TickResult:
        """Look at the host, relieve it if it must be, then take steps and write down what was decided."""
        if not self._lanes and not self._programs:
            self.refresh()
            return TickResult(LOOK_EVERY)
        self._watch()
        self._relieve()
        self.refresh()
        for lane in self._lanes.values():
            self._step(lane)
        self._write()
        return TickResult(WATCH_EVERY, considered=len(self._programs))

    def refresh(self) -> None:
        """Take in which queues are scaled, and how."""
        self._refreshed_at = clock.now()
        found = {queue.name: queue for queue in self._store.queues.list() if queue.bounds is not None}
        lanes = {}
        for name in self._served:
            if (queue := found.get(name)) is not None and queue.bounds is not None:
                lane = self._lanes.get(name) or ScaledQueue(name, queue.bounds.least)
                lane.paused = queue.paused
                lane.bound(queue.bounds, most=self._slots)
                lanes[name] = lane
        if lanes and not self._lanes:
            self._watch()
        changed = lanes.keys() != self._lanes.keys()
        self._lanes = lanes
        if changed:
            if not lanes:
                self.resumed()
            self._tell(force=True)
            self._changed()

    def resumed(self) -> None:
        """Nothing stays frozen; what was measured is written. For the end, or when nothing is scaled any more."""
        for program in list(self._programs.values()):
            if program.frozen_at is not None:
                self._act(ReliefAction.THAW, program, "nothing is scaled here any more")
        self._profiles.flush()

    def _watch(self) -> None:
        before, now = self._host, clock.now()
        self._host = self._options.host()
        self._swapping = before.total > 1 and self._host.swapped - before.swapped > SWAPPING
        for program in list(self._programs.values()):
            if program.frozen_at is not None and program.run.timeout is not None:
                program.run.timeout += now - self._looked_at  # a frozen program has all the time in the world
        self._looked_at = now
        before_that, self._strain = self._strain, strain(self._host, self._limit)
        if self._strain is not before_that:
            self._changed()
        self._tell_strain(now)

    def _tell_strain(self, now: float) -> None:
        """What is worse is written down at once, what is better in a while: figures at a border come and go."""
        level, (last, at) = self._strain, self._strain_told
        if level > last or (level < last and now - at > STRAIN_EVERY):
            self._strain_told = (level, now)
            used = f"{say_size(self._host.used)} of {say_size(self._host.total)} are in use"
            for name in self._lanes:
                self._decisions.append(
                    AutoscalerDecision(name, AutoscalerAction.STRAIN, f"memory is {level.name.lower()}: {used}")
                )

    def _relieve(self) -> None:
        now = clock.now()
        working = [program.working(now) for program in list(self._programs.values()) if program.run.stop_reason is None]
        relief = relieve(self._strain, working, since_eviction=now - self._evicted_at)
        program = None if relief is None else self._programs.get(relief.job_id)
        if relief is None or program is None:
            return
        why = f"memory is {self._strain.name.lower()}, and it takes {say_size(program.run.resident)}"
        self._act(relief.act, program, why)

    def _act(self, act: ReliefAction, program: AdmittedCommand, why: str) -> None:
        run = program.run
        log.warning("autoscaler: %s job %d: %s", act.value, run.lease.job_id, why)
        if act is ReliefAction.EVICT:
            self._evicted_at = clock.now()
            run.stop(StopReason.EVICTED)
        elif run.freeze(frozen=act is ReliefAction.FREEZE):
            program.frozen_at = clock.now() if act is ReliefAction.FREEZE else None
        self._decisions.append(AutoscalerDecision(program.queue, AutoscalerAction(act.value), why, run.lease.job_id))

    def _step(self, lane: ScaledQueue) -> None:
        now = clock.now()
        full = self._running(lane) >= lane.slots.count
        bearing = Bearing(
            self._host,
            swapping=self._swapping,
            failures=sum(at > now - LATELY for at in list(self._failures)),
            requested=full and not lane.paused and self._strain is Strain.EASY and self._next_fits(lane),
        )
        before = lane.slots
        lane.slots, why = step(before, bearing, lane.bounds, now)
        if why is not None:
            action = AutoscalerAction.STEP_UP if lane.slots.count > before.count else AutoscalerAction.STEP_BACK
            self._decisions.append(AutoscalerDecision(lane.queue, action, why, slots=lane.slots.count))
            self._changed()

    def _next_fits(self, lane: ScaledQueue) -> bool:
        line = self._store.autoscaler.line(lane.queue, self._kind.name, limit=lane.window)
        candidates = lane.candidates(
            line, self._profiles.of(line), self._options.memory_profiles, self._limit, poison_suspects=0
        )
        running = self._all_running()
        return choose(candidates, running, self._room(running), waited={}).chosen is not None

    # -- what is written ---------------------------------------------------------------------

    def _write(self) -> None:
        self._profiles.flush()
        decisions = [self._decisions.popleft() for _ in range(len(self._decisions))]
        try:
            self._store.autoscaler.decide(self._worker, self._hostname, decisions)
        except StoreUnavailable:
            self._decisions.extendleft(reversed(decisions))
            raise
        self._tell(force=False)

    def _tell(self, *, force: bool) -> None:
        at, last = self._told
        standing = self._standing() if self._lanes else None
        if force or standing != last or clock.now() - at > TELL_EVERY:
            self._told = (clock.now(), standing)
            self._store.autoscaler.tell(self._worker, None if standing is None else standing.dumps())
            others = [each for each in self._store.workers.list() if each.host == self._hostname]
            told = [load_autoscaler_status(each.autoscaler) for each in others if each.id != self._worker]
            self._promised = sum(max(0, each.forecast - each.resident) for each in told if each is not None)

    def _standing(self) -> AutoscalerStatus:
        running = self._all_running()
        host = self._host
        return AutoscalerStatus(
            total=host.total,
            used=host.used,
            limit=self._limit,
            room=self._room(running).now,
            resident=sum(program.resident for program in running),
            forecast=round(forecast(running)),
            cores=host.cores,
            load=host.load,
            cpu_pressure=host.cpu_pressure,
            memory_pressure=host.memory_pressure,
            strain=self._strain.name.lower(),
            frozen=[job_id for job_id, program in list(self._programs.items()) if program.frozen_at is not None],
            lanes=[lane.standing(self._running(lane)) for lane in self._lanes.values()],
        )

    # -- figures -----------------------------------------------------------------------------

    @property
    def _limit(self) -> int:
        return host_limit(self._host_text(), self._host.total)

    def _host_text(self) -> str:
        return limit_for(self._hostname, self._options.host_limits)

    def _running(self, lane: ScaledQueue) -> int:
        return sum(program.queue == lane.queue for program in list(self._programs.values()))

    def _all_running(self) -> list[RunningCommand]:
        return [RunningCommand(program.run.resident, program.expected) for program in list(self._programs.values())]

    def _room(self, running: Sequence[RunningCommand]) -> MemoryRoom:
        own = sum(program.resident for program in running)
        return room(self._limit, self._host.total, self._host.used, own=own, promised=self._promised)
