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
    │   ├── NoSuchSchedule
    │   └── DependencyNotFound      a dependency that does not exist
    ├── ConfigurationError      4
    │   ├── Refused                 changes need a key
    │   ├── UnknownScheme
    │   ├── MissingDriver
    │   ├── StoreMoved              another store has taken its place
    │   ├── SchemaTooNew
    │   ├── SchemaMissing
    │   ├── SchemaOutdated          it needs a migration
    │   ├── SchemaMismatch          changed by hand, or of a development version
    │   ├── NotAStore
    │   ├── StoreReadOnly
    │   │   └── PrivilegeMissing    the database user needs another role
    │   ├── NetworkFileSystem
    │   └── OtherDatabase
    ├── StoreUnavailable        5
    │   ├── FormerPrimary           another server has the store since a failover
    │   ├── ServerReadOnly          a standby, or a server that was set to read-only
    │   ├── StatementTimeout        a list took too long
    │   ├── StoreFull
    │   └── StoreLocked
    ├── Conflict                9
    │   ├── NothingChanged          an action matched, and could change nothing
    │   ├── DuplicateJob
    │   ├── DuplicateSchedule
    │   ├── JobInUse
    │   ├── BatchHeld               another run works on the batch
    │   ├── ServiceRunning          a service writes the same data
    │   ├── ResultLost              another consumer has it, or it has expired
    │   ├── StoreInUse              a holder is alive, or jobs exist already
    │   └── StoreBusy               a deadlock or a serialization failure
    │       └── JobLocked           another transaction has locked a job or a key
    ├── BatchPaused            11
    ├── StoreStopped           11   drain or emergency-stop is in force
    ├── Drift                  14   code or input has changed under an open run
    ├── InputFailed             8   the keys of a batch could not be read to their end
    ├── OutputLost              4   the work is done, its output could not be written
    ├── CommandFailed           1   a command of a unit or of holdfast run
    ├── NotStarted              1   a process ended before it was ready
    ├── JobFailed               1   the job whose result was requested is dead
    ├── JobCancelled           12
    ├── ResultDropped           1   the job is done, its result could not be stored
    ├── WaitTimeout            10
    └── LeaseLost              15

The numbers are exit codes of the command line. Every class has ``code``, ``exit_code``, ``http_status``,
``retryable`` and ``hint``; an instance adds ``context``, its data. ``errors.table`` lists them all.
Errors of HTTP requests alone are in ``errors.http``.
"""

from __future__ import annotations  # noqa: I001 - sorted, but not one name per line

from holdfast.errors.store import (
    NO_STORE as NO_STORE, ConfigurationError, FormerPrimary, MissingDriver, NetworkFileSystem, NotAStore, OtherDatabase,
    PrivilegeMissing, Refused, SchemaMismatch, SchemaMissing, SchemaOutdated, SchemaTooNew, ServerReadOnly,
    StatementTimeout, StoreFull, StoreLocked, StoreMoved, StoreReadOnly, StoreUnavailable, UnknownScheme,
)  # fmt: skip
from holdfast.errors.tree import (
    BatchHeld, BatchPaused, CommandFailed, Conflict, DependencyNotFound, Drift, DuplicateJob, DuplicateSchedule,
    HoldfastError, InputFailed, InvalidExpression, InvalidInput, InvalidKind, InvalidPayload, InvalidText,
    JobCancelled, JobFailed, JobInUse, JobLocked, JobPruned, LeaseLost, NeverFires, NoSuchBatch, NoSuchJob,
    NoSuchSchedule, NotFound, NothingChanged, NoTransaction, NotStarted, OutputLost, PayloadTooLarge, ResultDropped,
    ResultLost, ServiceRunning, StoreBusy, StoreInUse, StoreStopped, UnknownKind, UnknownZone, WaitTimeout,
)  # fmt: skip

__all__ = [
    "BatchHeld", "BatchPaused", "CommandFailed", "ConfigurationError", "Conflict", "DependencyNotFound", "Drift",
    "DuplicateJob", "DuplicateSchedule", "FormerPrimary", "HoldfastError", "InputFailed", "InvalidExpression",
    "InvalidInput", "InvalidKind", "InvalidPayload", "InvalidText", "JobCancelled", "JobFailed", "JobInUse",
    "JobLocked", "JobPruned", "LeaseLost", "MissingDriver", "NetworkFileSystem", "NeverFires", "NoSuchBatch",
    "NoSuchJob", "NoSuchSchedule", "NoTransaction", "NotAStore", "NotFound", "NotStarted", "NothingChanged",
    "OtherDatabase", "OutputLost", "PayloadTooLarge", "PrivilegeMissing", "Refused", "ResultDropped", "ResultLost",
    "SchemaMismatch", "SchemaMissing", "SchemaOutdated", "SchemaTooNew", "ServerReadOnly", "ServiceRunning",
    "StatementTimeout", "StoreBusy", "StoreFull", "StoreInUse", "StoreLocked", "StoreMoved", "StoreReadOnly",
    "StoreStopped", "StoreUnavailable", "UnknownKind", "UnknownScheme", "UnknownZone", "WaitTimeout",
]  # fmt: skip
