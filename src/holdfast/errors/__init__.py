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
    │   └── DependencyNotFound      a dependency names nothing
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
    │   ├── DuplicateSchedule
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

The numbers are exit codes of the command line. Every class has ``code``, ``exit_code``, ``http_status``,
``retryable`` and ``hint``; an instance adds ``context``, its data. ``errors.table`` lists them all.
Errors of HTTP requests alone are in ``errors.http``.
"""

from __future__ import annotations

from holdfast.errors.store import (
    NO_STORE,
    ConfigurationError,
    MissingDriver,
    NetworkFileSystem,
    NotAStore,
    OtherDatabase,
    Refused,
    SchemaMissing,
    SchemaTooNew,
    StoreFull,
    StoreMoved,
    StoreReadOnly,
    StoreUnavailable,
    UnknownScheme,
)
from holdfast.errors.tree import (
    BatchHeld,
    BatchPaused,
    CommandFailed,
    Conflict,
    DependencyNotFound,
    Drift,
    DuplicateJob,
    DuplicateSchedule,
    HoldfastError,
    InvalidExpression,
    InvalidInput,
    InvalidKind,
    InvalidPayload,
    InvalidText,
    JobCancelled,
    JobFailed,
    JobInUse,
    JobLocked,
    JobPruned,
    LeaseLost,
    NeverFires,
    NoSuchBatch,
    NoSuchJob,
    NoSuchSchedule,
    NotFound,
    NoTransaction,
    NotStarted,
    PayloadTooLarge,
    ResultLost,
    ServiceRunning,
    StoreInUse,
    UnknownKind,
    UnknownZone,
    WaitTimeout,
)

__all__ = [
    "NO_STORE",
    "BatchHeld",
    "BatchPaused",
    "CommandFailed",
    "ConfigurationError",
    "Conflict",
    "DependencyNotFound",
    "Drift",
    "DuplicateJob",
    "DuplicateSchedule",
    "HoldfastError",
    "InvalidExpression",
    "InvalidInput",
    "InvalidKind",
    "InvalidPayload",
    "InvalidText",
    "JobCancelled",
    "JobFailed",
    "JobInUse",
    "JobLocked",
    "JobPruned",
    "LeaseLost",
    "MissingDriver",
    "NetworkFileSystem",
    "NeverFires",
    "NoSuchBatch",
    "NoSuchJob",
    "NoSuchSchedule",
    "NoTransaction",
    "NotAStore",
    "NotFound",
    "NotStarted",
    "OtherDatabase",
    "PayloadTooLarge",
    "Refused",
    "ResultLost",
    "SchemaMissing",
    "SchemaTooNew",
    "ServiceRunning",
    "StoreFull",
    "StoreInUse",
    "StoreMoved",
    "StoreReadOnly",
    "StoreUnavailable",
    "UnknownKind",
    "UnknownScheme",
    "UnknownZone",
    "WaitTimeout",
]
