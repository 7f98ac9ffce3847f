"""The log of runs: one line for each start, end, retry, release and take-over, on the logger ``holdfast.jobs``."""

from __future__ import annotations

import logging

import msgspec

from holdfast.domain.jobs.job import Lease, WorkerId
from holdfast.domain.jobs.verdict import Done, Failed, Lost, Released, Stopped, Unreadable, Verdict
from holdfast.domain.schedules.plan import Plan
from holdfast.store.jobs.settlement import Settlement, TakenOver
from holdfast.worker.active_runs import Run
from holdfast.worker.handler_call import first_line
from holdfast.worker.served_lanes import ServedLanes

#: Starts, successes and planned releases are logged at DEBUG: there may be thousands in a second.
log = logging.getLogger("holdfast.jobs")


class RunLog:
    """Writes the lines of one worker. Every line has an *event* and the fields of its job."""

    def __init__(self, worker: WorkerId, served: ServedLanes) -> None:
        self._worker = worker
        self._served = served

    @property
    def is_verbose(self) -> bool:
        """Whether starts and successes are logged."""
        return log.isEnabledFor(logging.DEBUG)

    def started(self, run: Run) -> None:
        if self.is_verbose:
            log.debug("a run started", extra=self._fields("started", run.lease))

    def settled(self, settlement: Settlement, verdict: Verdict | None = None) -> None:
        """Log how a run ended. *verdict*: the next state of its job, if the store has returned it."""
        lease, outcome = settlement.lease, settlement.outcome
        ran = None if settlement.ran is None else round(settlement.ran.total_seconds(), 3)
        match outcome:
            case Done():
                log.debug("a run finished", extra=self._fields("finished", lease, ran))
            case Released():
                level = logging.INFO if outcome.interrupted else logging.DEBUG
                log.log(level, "a run was released", extra=self._fields("released", lease, ran))
            case Stopped():
                log.info("a run was cancelled", extra=self._fields("cancelled", lease, ran))
            case Unreadable():
                text = "this worker cannot read a payload and leaves the job to other workers: %s"
                log.warning(text, self._first_line(lease, outcome), extra=self._fields("unreadable", lease, ran))
            case Failed() | Lost():
                retried = verdict is not None and not verdict.state.finished
                text = "a run failed (%s) and is retried: %s" if retried else "a run failed (%s): %s"
                fields = self._fields("retried" if retried else "failed", lease, ran)
                if retried and verdict is not None and verdict.delay is not None:
                    fields["retry_in_s"] = round(verdict.delay.total_seconds(), 3)
                log.warning(text, outcome.reason, self._first_line(lease, outcome), extra=fields)

    def overdue(self, settlement: Settlement, outcome: Done) -> None:
        """Log that a run succeeded after its timeout."""
        ran = None if settlement.ran is None else round(settlement.ran.total_seconds(), 3)
        log.warning("a run finished late: %s", outcome.overdue, extra=self._fields("overdue", settlement.lease, ran))

    def _first_line(self, lease: Lease, outcome: Failed | Lost | Unreadable) -> str:
        return first_line(lease, outcome, self._served.kinds.get(lease.kind))

    def _fields(self, event: str, lease: Lease, duration_s: float | None = None) -> dict[str, object]:
        fields = {"event": event, "job": lease.job_id, "kind": lease.kind, "queue": lease.queue}
        fields |= {"attempt": lease.attempt, "token": lease.token, "worker": self._worker}
        return fields | {"duration_s": duration_s} | _plan_fields(lease.plan)


def _plan_fields(plan: str | None) -> dict[str, object]:
    """The schedule, plan time and scope of the job of a plan."""
    if plan is None:
        return {}
    decoded = msgspec.json.decode(plan, type=Plan)
    return {"schedule": decoded.schedule, "plan": decoded.time.isoformat(), "scope": decoded.scope}


def log_take_over(taken: TakenOver) -> None:
    """Log that maintenance has ended the lease of a lost worker."""
    job = taken.job
    fields = {"event": "taken_over", "job": job.job_id, "kind": job.kind, "queue": job.queue}
    fields |= {"attempt": job.attempt, "token": job.token, "worker": job.worker} | _plan_fields(job.plan)
    log.warning("a run was taken over from a lost worker; its job is %s", taken.state, extra=fields)
