"""Translation of PostgreSQL's errors into Holdfast's, and which of them are temporary."""

from __future__ import annotations

import psycopg
from psycopg import errors

from holdfast.errors import InvalidInput, JobLocked, SchemaMissing, StoreFull, StoreReadOnly, StoreUnavailable

#: A server refuses writes for a short time around its promotion.
_TEMPORARY = (errors.DeadlockDetected, errors.SerializationFailure, errors.ReadOnlySqlTransaction)


def is_temporary(error: BaseException) -> bool:
    """Whether the same work may succeed on another connection."""
    if isinstance(error, _TEMPORARY):
        return True
    if isinstance(
        error, errors.LockNotAvailable | errors.QueryCanceled | errors.DiskFull | errors.ProgramLimitExceeded
    ):
        return False
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def translate(error: BaseException) -> BaseException:
    """The error to raise in place of the driver's error."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    match error:
        case errors.LockNotAvailable():
            return JobLocked(f"a job's row is locked by another transaction: {text}")
        case errors.DiskFull():
            return StoreFull(f"the disk of the database is full: {text}")
        case errors.ReadOnlySqlTransaction() | errors.InsufficientPrivilege():
            return StoreReadOnly(f"the database cannot be written: {text}")
        case errors.UndefinedTable() | errors.InvalidSchemaName() | errors.UndefinedFunction():
            return SchemaMissing(f"the schema is missing or older than this code: {text}")
        case psycopg.DataError():
            return InvalidInput(f"the database cannot keep this: {text}")
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return StoreUnavailable(f"the database does not answer: {text}")
        case _:
            return error
