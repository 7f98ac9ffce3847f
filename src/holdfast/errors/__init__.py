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
    │   ├── SchemaOutdated          it needs a migration
    │   ├── SchemaMismatch          somebody has changed the schema
    │   ├── NotAStore
    │   ├── StoreReadOnly
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
    │   ├── StoreInUse              a holder is alive, or jobs are there already
    │   └── StoreBusy               a deadlock or a serialization failure
    │       └── JobLocked           another transaction has locked a job or a key
    ├── BatchPaused            11
    ├── StoreStopped           11   drain or emergency-stop is in force
    ├── Drift                  14   code or input has changed under an open run
    ├── CommandFailed           1   a program that a unit ran
    ├── NotStarted              1   a process ended before it was ready
    ├── JobFailed               1   the job whose result was asked for is dead
    ├── JobCancelled           12
    ├── ResultDropped           1   the job is done, its result could not be stored
    ├── WaitTimeout            10
    └── LeaseLost              15

The numbers are exit codes of the command line. Every class has ``code``, ``exit_code``, ``http_status``,
``retryable`` and ``hint``; an instance adds ``context``, its data. ``errors.table`` lists them all.
Errors of HTTP requests alone are in ``errors.http``.
"""

from __future__ import annotations

from holdfast.errors.store import NO_STORE as NO_STORE
from holdfast.errors.store import ConfigurationError as ConfigurationError
from holdfast.errors.store import FormerPrimary as FormerPrimary
from holdfast.errors.store import MissingDriver as MissingDriver
from holdfast.errors.store import NetworkFileSystem as NetworkFileSystem
from holdfast.errors.store import NotAStore as NotAStore
from holdfast.errors.store import OtherDatabase as OtherDatabase
from holdfast.errors.store import Refused as Refused
from holdfast.errors.store import SchemaMismatch as SchemaMismatch
from holdfast.errors.store import SchemaMissing as SchemaMissing
from holdfast.errors.store import SchemaOutdated as SchemaOutdated
from holdfast.errors.store import SchemaTooNew as SchemaTooNew
from holdfast.errors.store import ServerReadOnly as ServerReadOnly
from holdfast.errors.store import StatementTimeout as StatementTimeout
from holdfast.errors.store import StoreFull as StoreFull
from holdfast.errors.store import StoreLocked as StoreLocked
from holdfast.errors.store import StoreMoved as StoreMoved
from holdfast.errors.store import StoreReadOnly as StoreReadOnly
from holdfast.errors.store import StoreUnavailable as StoreUnavailable
from holdfast.errors.store import UnknownScheme as UnknownScheme
from holdfast.errors.tree import BatchHeld as BatchHeld
from holdfast.errors.tree import BatchPaused as BatchPaused
from holdfast.errors.tree import CommandFailed as CommandFailed
from holdfast.errors.tree import Conflict as Conflict
from holdfast.errors.tree import DependencyNotFound as DependencyNotFound
from holdfast.errors.tree import Drift as Drift
from holdfast.errors.tree import DuplicateJob as DuplicateJob
from holdfast.errors.tree import DuplicateSchedule as DuplicateSchedule
from holdfast.errors.tree import HoldfastError as HoldfastError
from holdfast.errors.tree import InvalidExpression as InvalidExpression
from holdfast.errors.tree import InvalidInput as InvalidInput
from holdfast.errors.tree import InvalidKind as InvalidKind
from holdfast.errors.tree import InvalidPayload as InvalidPayload
from holdfast.errors.tree import InvalidText as InvalidText
from holdfast.errors.tree import JobCancelled as JobCancelled
from holdfast.errors.tree import JobFailed as JobFailed
from holdfast.errors.tree import JobInUse as JobInUse
from holdfast.errors.tree import JobLocked as JobLocked
from holdfast.errors.tree import JobPruned as JobPruned
from holdfast.errors.tree import LeaseLost as LeaseLost
from holdfast.errors.tree import NeverFires as NeverFires
from holdfast.errors.tree import NoSuchBatch as NoSuchBatch
from holdfast.errors.tree import NoSuchJob as NoSuchJob
from holdfast.errors.tree import NoSuchSchedule as NoSuchSchedule
from holdfast.errors.tree import NotFound as NotFound
from holdfast.errors.tree import NothingChanged as NothingChanged
from holdfast.errors.tree import NoTransaction as NoTransaction
from holdfast.errors.tree import NotStarted as NotStarted
from holdfast.errors.tree import PayloadTooLarge as PayloadTooLarge
from holdfast.errors.tree import ResultDropped as ResultDropped
from holdfast.errors.tree import ResultLost as ResultLost
from holdfast.errors.tree import ServiceRunning as ServiceRunning
from holdfast.errors.tree import StoreBusy as StoreBusy
from holdfast.errors.tree import StoreInUse as StoreInUse
from holdfast.errors.tree import StoreStopped as StoreStopped
from holdfast.errors.tree import UnknownKind as UnknownKind
from holdfast.errors.tree import UnknownZone as UnknownZone
from holdfast.errors.tree import WaitTimeout as WaitTimeout
