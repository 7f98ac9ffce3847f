"""The tree of errors, except its branch for the store."""

from __future__ import annotations

from typing import Any, ClassVar


class HoldfastError(Exception):
    """Base of all errors of Holdfast.

    Arguments after the message become ``context``: values that a program can read.
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
    """The call is invalid, and repeating it does not help. Nothing was written."""

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
    """A text contains a character that a store cannot keep."""

    code = "E_INVALID_TEXT"
    hint = "Remove NUL characters and lone surrogates, or encode the bytes (base64) first."


class InvalidKind(InvalidInput):
    """A handler cannot be registered under this name or with these settings."""

    code = "E_INVALID_KIND"


class NoTransaction(InvalidInput):
    """The connection of the caller is in autocommit mode."""

    code = "E_NO_TRANSACTION"
    hint = "Begin a transaction first, or leave the connection out to enqueue at once."


class InvalidExpression(InvalidInput):
    """The expression of a schedule is invalid; ``context["position"]`` is the position of the error."""

    code = "E_EXPRESSION"
    hint = "Try it with: holdfast schedule preview 'EXPRESSION'"

    def __init__(self, message: str, /, *, position: int, hint: str | None = None) -> None:
        super().__init__(f"{message}, at character {position + 1}", hint=hint, position=position)


class UnknownZone(InvalidInput):
    """The time zone is unknown."""

    code = "E_UNKNOWN_ZONE"
    hint = "Zones have the names of the IANA database: Europe/Berlin, America/New_York, UTC."


class NeverFires(InvalidInput):
    """The expression of a schedule is valid, but matches no date."""

    code = "E_NEVER_FIRES"
    hint = "With a wildcard such as */2 in one of them, day and weekday must both match; and February has 29 days."


class NotFound(HoldfastError):
    """The named object does not exist."""

    code, exit_code, http_status = "E_NOT_FOUND", 3, 404


class UnknownKind(NotFound):
    """No application has registered this kind of job."""

    code = "E_UNKNOWN_KIND"
    hint = "Register the kind with @app.job, or start a worker of the application that has it."


class NoSuchJob(NotFound):
    """No job has this id."""

    code = "E_NO_SUCH_JOB"


class JobPruned(NotFound):
    """Retention deleted the finished job. Its key is still taken."""

    code, http_status = "E_JOB_PRUNED", 410
    hint = "Raise the retention if finished jobs must stay longer."


class NoSuchBatch(NotFound):
    """No batch has this id."""

    code = "E_NO_SUCH_BATCH"
    hint = "See holdfast batch ls."


class NoSuchSchedule(NotFound):
    """No schedule has this name."""

    code = "E_NO_SUCH_SCHEDULE"
    hint = "See holdfast schedule ls."


class DependencyNotFound(NotFound):
    """A dependency names a job, key or label that matches nothing."""

    code = "E_DEPENDENCY_NOT_FOUND"
    hint = "Labels and keys must exist when you enqueue: enqueue the dependencies first."


class Conflict(HoldfastError):
    """Another process holds the object, or has changed it."""

    code, exit_code, http_status = "E_CONFLICT", 9, 409


class NothingChanged(Conflict):
    """The action matched objects, but could change none of them."""

    code = "E_NOTHING_CHANGED"
    hint = "The message gives the reason. For a job, see also holdfast show and holdfast why."


class DuplicateJob(Conflict):
    """A job with this unique key exists, and on_conflict is raise."""

    code = "E_DUPLICATE_JOB"
    hint = "Use on_conflict='skip' to get the id of the existing job instead."


class DuplicateSchedule(Conflict):
    """A schedule with this name exists already."""

    code = "E_DUPLICATE_SCHEDULE"
    hint = "Use another name, or change the existing schedule: holdfast schedule edit."


class JobInUse(Conflict):
    """A live worker runs the job, or a live job depends on it."""

    code = "E_JOB_IN_USE"
    hint = "Cancel it first, and wait until it has finished."


class BatchHeld(Conflict):
    """Another live run holds this batch."""

    code = "E_BATCH_HELD"
    hint = "Wait for it (--wait), stop it, or join it with --allow-concurrent."


class ServiceRunning(Conflict):
    """A conflicting service runs (the option --conflicts)."""

    code = "E_SERVICE_RUNNING"
    hint = "Stop it, wait until it ends (--wait), or run beside it with --allow-concurrent."


class ResultLost(Conflict):
    """The consumer's lease on the result has expired: another consumer has it, or the result expired."""

    code = "E_RESULT_LOST"
    hint = "Take fewer results at the same time, or request a longer lease."


class StoreInUse(Conflict):
    """Others use the store, or have used it, and the call could damage their work."""

    code = "E_STORE_IN_USE"


class StoreBusy(Conflict):
    """A deadlock, or another transaction changed the same rows. Nothing was written."""

    code, retryable = "E_STORE_BUSY", True
    hint = "Run the call again; in a transaction of your own, roll it back and run all of it again."


class JobLocked(StoreBusy):
    """Another transaction has locked a job or a key for seconds. Nothing was written."""

    code = "E_JOB_LOCKED"
    hint = "Find the transaction that has locked rows of Holdfast's tables, and end it. Then try again."


class BatchPaused(HoldfastError):
    """A person has paused the batch: no unit starts until it is resumed."""

    code, exit_code, http_status = "E_PAUSED", 11, 409
    hint = "Resume it with holdfast batch resume, then run it again."


class StoreStopped(HoldfastError):
    """A person has stopped the whole store: no job starts until it is resumed."""

    code, exit_code, http_status = "E_STOPPED", 11, 409
    hint = "Resume it with holdfast resume --all, then try again."


class Drift(HoldfastError):
    """The version, an input or the place of the function has changed since the batch started."""

    code, exit_code, http_status = "E_DRIFT", 14, 409
    hint = "Accept the change with --accept-drift, or start over with --fresh."


class InputFailed(HoldfastError):
    """The keys of a batch could not be read to their end: the code or the file that lists them failed."""

    code, exit_code, http_status, retryable = "E_INPUT", 8, 500, True
    hint = "Fix the cause, then run the same command again: it continues where it stopped."


class OutputLost(HoldfastError):
    """The work is done, but its output could not be written: the disk may be full."""

    code, exit_code = "E_OUTPUT", 4
    hint = "Free space, or write elsewhere. A batch keeps its results: holdfast batch show."


class CommandFailed(HoldfastError):
    """A command failed, or could not be started."""

    code = "E_COMMAND_FAILED"


class NotStarted(HoldfastError):
    """A process stopped before it was ready."""

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
    """The job has not finished within the time to wait."""

    code, exit_code, http_status, retryable = "E_WAIT_TIMEOUT", 10, 504, True


class LeaseLost(HoldfastError):
    """The lease has expired and the job was taken over, or it was released before.

    Results of this worker are no longer recorded: the new holder owns the outcome.
    """

    code, exit_code, http_status = "E_LEASE_LOST", 15, 409
    hint = (
        "The worker renews leases by itself, but could not for a whole lease: its host or the store was away, or a"
        " handler kept the interpreter busy. See the worker's log; use executor='process', or raise the lease."
    )

    @classmethod
    def of(cls, job_id: int, token: int) -> LeaseLost:
        return cls(f"job {job_id} is no longer leased under token {token}", job_id=job_id, token=token)
