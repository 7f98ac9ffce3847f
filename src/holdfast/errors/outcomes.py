"""Errors that describe how a run ended, or who holds the row already."""

from __future__ import annotations

from holdfast.errors.base import HoldfastError


class Conflict(HoldfastError):
    """Somebody else got there first."""

    code = "E_CONFLICT"
    exit_code = 9
    http_status = 409


class DuplicateJob(Conflict):
    """A job with this unique key exists, and the caller asked for an error."""

    code = "E_DUPLICATE_JOB"
    hint = "Use on_conflict='skip' to get the id of the existing job instead."


class DuplicateSchedule(Conflict):
    """There is a schedule of this name already."""

    code = "E_DUPLICATE_SCHEDULE"
    hint = "Take another name, or change the one that is there: holdfast schedule edit."


class JobInUse(Conflict):
    """The job is held by a live worker or needed by a live job."""

    code = "E_JOB_IN_USE"
    hint = "Cancel it first, and wait until it has ended."


class BatchHeld(Conflict):
    """Another run works on this batch, and is alive."""

    code = "E_BATCH_HELD"
    hint = "Wait for it (--wait), stop it, or join it with --allow-concurrent."


class ServiceRunning(Conflict):
    """A service that is known to write the same data is running."""

    code = "E_SERVICE_RUNNING"
    hint = "Stop it, wait for its end (--wait), or go on beside it with --allow-concurrent."


class ResultLost(Conflict):
    """The consumer took longer than it had: another has the result now, or it has expired."""

    code = "E_RESULT_LOST"
    hint = "Take fewer results at a time, or ask for a longer term."


class StoreInUse(Conflict):
    """Somebody works on the store, or has worked on it, who would be hurt."""

    code = "E_STORE_IN_USE"


class JobLocked(Conflict):
    """Another transaction holds the row of a job for longer than a moment."""

    code = "E_JOB_LOCKED"
    retryable = True
    hint = "Look for a transaction that has locked rows of Holdfast's tables, and commit it."


class BatchPaused(HoldfastError):
    """A person has paused the batch: it starts nothing until it is resumed."""

    code = "E_PAUSED"
    exit_code = 11
    http_status = 409
    hint = "Let it go on with holdfast batch resume, then run it again."


class Drift(HoldfastError):
    """The version of the function, or an input that it declares, has changed under an open run."""

    code = "E_DRIFT"
    exit_code = 14
    http_status = 409
    hint = "Accept it with --accept-drift, or begin anew with --fresh."


class CommandFailed(HoldfastError):
    """A program that a unit ran ended with an error, or could not be started."""

    code = "E_COMMAND_FAILED"


class NotStarted(HoldfastError):
    """A process that was started ended before it was ready."""

    code = "E_NOT_STARTED"


class JobFailed(HoldfastError):
    """The job is dead: it has used up its attempts."""

    code = "E_JOB_FAILED"


class JobCancelled(HoldfastError):
    """The job was cancelled."""

    code = "E_JOB_CANCELLED"
    exit_code = 12


class WaitTimeout(HoldfastError):
    """The job had not ended when the time to wait was over."""

    code = "E_WAIT_TIMEOUT"
    exit_code = 10
    http_status = 504
    retryable = True


class LeaseLost(HoldfastError):
    """The lease lapsed and the job was taken over, or it was given back before.

    Whatever this worker did since must not be recorded: the new holder owns the outcome.
    """

    code = "E_LEASE_LOST"
    exit_code = 15
    http_status = 409
    hint = "Raise the lease time, or let the handler report progress more often."

    @classmethod
    def of(cls, job_id: int, token: int) -> LeaseLost:
        return cls(f"job {job_id} is no longer leased under token {token}", job_id=job_id, token=token)
