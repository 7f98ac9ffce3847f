"""Every error that Holdfast raises on purpose, in one tree.

::

    HoldfastError
    ├── InvalidInput            2   the call itself is wrong
    │   ├── InvalidPayload          a payload does not fit its handler
    │   ├── PayloadTooLarge
    │   ├── InvalidText             a NUL or half a character in a text
    │   ├── InvalidKind             a handler cannot be registered
    │   ├── InvalidExpression       a schedule cannot be read
    │   ├── UnknownZone
    │   ├── NeverFires              a schedule that names no day
    │   └── NoTransaction           the caller's connection would commit at once
    ├── NotFound                3
    │   ├── UnknownKind
    │   ├── NoSuchJob
    │   ├── JobPruned
    │   ├── NoSuchBatch
    │   └── NeedNotFound            a dependency names nothing
    ├── ConfigurationError      4
    │   ├── Refused                 changes need a key
    │   ├── UnknownScheme
    │   ├── MissingDriver
    │   ├── StoreMoved              another store has taken its place
    │   ├── SchemaTooNew
    │   ├── SchemaMissing
    │   ├── NotAStore
    │   ├── StoreReadOnly
    │   ├── NetworkFileSystem
    │   └── OtherDatabase
    ├── StoreUnavailable        5
    │   └── StoreFull
    ├── Conflict                9
    │   ├── DuplicateJob
    │   ├── JobInUse
    │   ├── BatchHeld               another run works on the batch
    │   ├── ServiceRunning          a service writes the same data
    │   ├── ResultLost              another consumer has it, or it has expired
    │   ├── StoreInUse              a holder is alive, or jobs are there already
    │   └── JobLocked               a user's own transaction holds the job's row
    ├── BatchPaused            11
    ├── Drift                  14   code or input has changed under an open run
    ├── CommandFailed           1   a program that a unit ran
    ├── NotStarted              1   a process ended before it was ready
    ├── JobFailed               1   the job whose result was asked for is dead
    ├── JobCancelled           12
    ├── WaitTimeout            10
    └── LeaseLost              15

An error carries a word (``code``), the exit code of the command line, what to do next
(``hint``) and its facts (``context``).
"""

from __future__ import annotations

from typing import Any, ClassVar


class HoldfastError(Exception):
    """Base of all errors of Holdfast.

    Arguments after the message become ``context``: the facts that a program may want.
    """

    code: ClassVar[str] = "E_HOLDFAST"
    exit_code: ClassVar[int] = 1
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

    code = "E_INVALID"
    exit_code = 2


class InvalidPayload(InvalidInput):
    """The payload does not fit the annotations of the handler."""

    code = "E_INVALID_PAYLOAD"
    hint = "Compare the payload with the handler's annotations; the message names the field."


class PayloadTooLarge(InvalidInput):
    """The payload is larger than the store accepts."""

    code = "E_PAYLOAD_TOO_LARGE"
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

    code = "E_NOT_FOUND"
    exit_code = 3


class UnknownKind(NotFound):
    """No application has registered this kind of job."""

    code = "E_UNKNOWN_KIND"
    hint = "Register the kind with @app.job, or start a worker of the application that has it."


class NoSuchJob(NotFound):
    """No job has this id."""

    code = "E_NO_SUCH_JOB"


class JobPruned(NotFound):
    """The job ended long ago; its row was removed by retention, its key was kept."""

    code = "E_JOB_PRUNED"
    hint = "Raise the retention if finished jobs must stay longer."


class NoSuchBatch(NotFound):
    """There is no batch with this id."""

    code = "E_NO_SUCH_BATCH"
    hint = "See holdfast batch ls."


class NeedNotFound(NotFound):
    """A dependency names a job, key or label that matches nothing."""

    code = "E_NEED_NOT_FOUND"
    hint = "Labels and keys are looked up at once: enqueue the needed jobs first."


class ConfigurationError(HoldfastError):
    """The set-up or the permissions are wrong."""

    code = "E_CONFIG"
    exit_code = 4


class Refused(ConfigurationError):
    """Changes on this store need a key, and the right one was not given."""

    code = "E_REFUSED"
    hint = "Set HOLDFAST_API_KEY to the key of this store."


class UnknownScheme(ConfigurationError):
    """The URL names a store that Holdfast does not have."""

    code = "E_UNKNOWN_SCHEME"
    hint = "Use sqlite:///path/to/file.db or postgresql://user@host/database."


class MissingDriver(ConfigurationError):
    """The driver for this store is not installed."""

    code = "E_MISSING_DRIVER"
    hint = "Install it with: pip install 'holdfast[postgres]'"


class StoreMoved(ConfigurationError):
    """The store was copied to another, which has taken its place: this one takes and starts nothing any more."""

    code = "E_STORE_MOVED"
    hint = "Change the URL to that of the other store."


class SchemaTooNew(ConfigurationError):
    """The store was set up by a newer Holdfast that no longer accepts this one."""

    code = "E_SCHEMA_TOO_NEW"
    hint = "Upgrade Holdfast on this host."


#: What to do when a store is looked at that nobody has made.
NO_STORE = "Is the URL right? The first enqueue makes a store, and so do holdfast up and holdfast db migrate."


class SchemaMissing(ConfigurationError):
    """The store is not set up, or older than this code, and may not be changed from here."""

    code = "E_SCHEMA_MISSING"
    hint = "Let an owner of the database migrate it, then start again."


class NotAStore(ConfigurationError):
    """The file exists and is not a SQLite database."""

    code = "E_NOT_A_STORE"
    hint = "Name another file: this one is left as it is."


class StoreReadOnly(ConfigurationError):
    """The store can be read but not written."""

    code = "E_STORE_READ_ONLY"
    hint = "Check owner and mode of the file and of its directory, or the role's privileges."


class NetworkFileSystem(ConfigurationError):
    """SQLite's locks do not hold on a network file system."""

    code = "E_NETWORK_FILE_SYSTEM"
    hint = "Use a local disk, or PostgreSQL for several hosts."


class OtherDatabase(ConfigurationError):
    """The caller's connection does not lead to this store."""

    code = "E_OTHER_DATABASE"
    hint = "Enqueue through a connection to the database that the app's URL names."


class StoreUnavailable(HoldfastError):
    """The store did not answer; the same call may work later."""

    code = "E_STORE_UNAVAILABLE"
    exit_code = 5
    retryable = True
    hint = "Is the database running, and does the URL lead to it? The same call may succeed later."


class StoreFull(StoreUnavailable):
    """The disk of the store is full; nothing was written."""

    code = "E_STORE_FULL"
    hint = "Free some space, then try again; nothing was half-written."


class Conflict(HoldfastError):
    """Somebody else got there first."""

    code = "E_CONFLICT"
    exit_code = 9


class DuplicateJob(Conflict):
    """A job with this unique key exists, and the caller asked for an error."""

    code = "E_DUPLICATE_JOB"
    hint = "Use on_conflict='skip' to get the id of the existing job instead."


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
    hint = "Let it go on with holdfast batch resume, then run it again."


class Drift(HoldfastError):
    """The version of the function, or an input that it declares, has changed under an open run."""

    code = "E_DRIFT"
    exit_code = 14
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
    retryable = True


class LeaseLost(HoldfastError):
    """The lease lapsed and the job was taken over, or it was given back before.

    Whatever this worker did since must not be recorded: the new holder owns the outcome.
    """

    code = "E_LEASE_LOST"
    exit_code = 15
    hint = "Raise the lease time, or let the handler report progress more often."

    @classmethod
    def of(cls, job_id: int, token: int) -> LeaseLost:
        return cls(f"job {job_id} is no longer leased under token {token}", job_id=job_id, token=token)
