"""The tree of errors, except its branch for the store."""

from __future__ import annotations

from typing import Any, ClassVar


class HoldfastError(Exception):
    """Base of all errors of Holdfast.

    Arguments after the message become ``context``: the facts that a program may want.
    """

    code: ClassVar[str] = "E_HOLDFAST"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    hint: str = ""

    def __init__(self, message: str, /, *, hint: str | None = None, **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.context = context
        if hint is not None:
            self.hint = hint
        if self.hint:
            self.add_note(self.hint)


class InvalidInput(HoldfastError):
    """The call is wrong and will be wrong again: nothing was written."""

    code, exit_code, http_status = "E_INVALID", 2, 400


class InvalidPayload(InvalidInput):
    """The payload does not fit the annotations of the handler."""

    code = "E_INVALID_PAYLOAD"
    hint = "Compare the payload with the handler's annotations; the message names the field."


class PayloadTooLarge(InvalidInput):
    """The payload is larger than the store accepts."""

    code, http_status = "E_PAYLOAD_TOO_LARGE", 413
    hint = "Keep the data elsewhere (a file, a table) and enqueue its name."


class InvalidText(InvalidInput):
    """A text holds a character that cannot be stored everywhere."""

    code = "E_INVALID_TEXT"
    hint = "Remove NUL characters and lone surrogates, or encode the bytes (base64) first."


class InvalidKind(InvalidInput):
    """A handler cannot be registered under this name or with these settings."""

    code = "E_INVALID_KIND"


class NoTransaction(InvalidInput):
    """The caller's connection commits every statement by itself."""

    code = "E_NO_TRANSACTION"
    hint = "Begin a transaction first, or leave the connection out to enqueue at once."


class InvalidExpression(InvalidInput):
    """A schedule cannot be read; ``context["position"]`` is the character where it goes wrong."""

    code = "E_EXPRESSION"
    hint = "Try it with: holdfast schedule preview 'EXPRESSION'"

    def __init__(self, message: str, /, *, position: int, hint: str | None = None) -> None:
        super().__init__(f"{message}, at character {position + 1}", hint=hint, position=position)


class UnknownZone(InvalidInput):
    """There is no such time zone."""

    code = "E_UNKNOWN_ZONE"
    hint = "Zones have the names of the IANA database: Europe/Berlin, America/New_York, UTC."


class NeverFires(InvalidInput):
    """A schedule that can be read, but names no day of the calendar."""

    code = "E_NEVER_FIRES"
    hint = "With a wildcard such as */2 in one of them, day and weekday must both hold; and February has 29 days."


class NotFound(HoldfastError):
    """What was named does not exist."""

    code, exit_code, http_status = "E_NOT_FOUND", 3, 404


class UnknownKind(NotFound):
    """No application has registered this kind of job."""

    code = "E_UNKNOWN_KIND"
    hint = "Register the kind with @app.job, or start a worker of the application that has it."


class NoSuchJob(NotFound):
    """No job has this id."""

    code = "E_NO_SUCH_JOB"


class JobPruned(NotFound):
    """The job ended long ago; its row was removed by retention, its key was kept."""

    code, http_status = "E_JOB_PRUNED", 410
    hint = "Raise the retention if finished jobs must stay longer."


class NoSuchBatch(NotFound):
    """There is no batch with this id."""

    code = "E_NO_SUCH_BATCH"
    hint = "See holdfast batch ls."


class NoSuchSchedule(NotFound):
    """There is no schedule of this name."""

    code = "E_NO_SUCH_SCHEDULE"
    hint = "See holdfast schedule ls."


class DependencyNotFound(NotFound):
    """A dependency names a job, key or label that matches nothing."""

    code = "E_NEED_NOT_FOUND"
    hint = "Labels and keys are looked up at once: enqueue the needed jobs first."


class Conflict(HoldfastError):
    """Somebody else got there first."""

    code, exit_code, http_status = "E_CONFLICT", 9, 409


class NothingChanged(Conflict):
    """The action matched something, and could change nothing of it."""

    code = "E_NOTHING_CHANGED"
    hint = "The message says why; holdfast show and holdfast why say more about a job."


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


class StoreBusy(Conflict):
    """Another transaction got in the way: a deadlock, or changes since the transaction began. Nothing was written."""

    code, retryable = "E_STORE_BUSY", True
    hint = "Run the call again; in a transaction of your own, roll it back and run all of it again."


class JobLocked(StoreBusy):
    """Another transaction holds a lock on a job or a key for longer than a moment. Nothing was written."""

    code = "E_JOB_LOCKED"
    hint = "Look for a transaction that has locked rows of Holdfast's tables, and commit it. Then try again."


class BatchPaused(HoldfastError):
    """A person has paused the batch: it starts nothing until it is resumed."""

    code, exit_code, http_status = "E_PAUSED", 11, 409
    hint = "Let it go on with holdfast batch resume, then run it again."


class StoreStopped(HoldfastError):
    """A person has stopped the whole store: it starts nothing until it is resumed."""

    code, exit_code, http_status = "E_STOPPED", 11, 409
    hint = "Let it go on with holdfast resume --all, then try again."


class Drift(HoldfastError):
    """The version of the function, or an input that it declares, has changed under an open run."""

    code, exit_code, http_status = "E_DRIFT", 14, 409
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

    code, exit_code = "E_JOB_CANCELLED", 12


class ResultDropped(HoldfastError):
    """The job is done, but its return value could not be stored."""

    code = "E_RESULT_DROPPED"
    hint = "Return JSON of at most 256 KiB; keep larger data in a file or table and return its name."


class WaitTimeout(HoldfastError):
    """The job had not ended when the time to wait was over."""

    code, exit_code, http_status, retryable = "E_WAIT_TIMEOUT", 10, 504, True


class LeaseLost(HoldfastError):
    """The lease lapsed and the job was taken over, or it was given back before.

    Whatever this worker did since must not be recorded: the new holder owns the outcome.
    """

    code, exit_code, http_status = "E_LEASE_LOST", 15, 409
    hint = "Raise the lease time, or let the handler report progress more often."

    @classmethod
    def of(cls, job_id: int, token: int) -> LeaseLost:
        return cls(f"job {job_id} is no longer leased under token {token}", job_id=job_id, token=token)
