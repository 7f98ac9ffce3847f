"""Errors of the store: its URL, its schema, its permissions, its availability."""

from __future__ import annotations

from holdfast.errors.tree import HoldfastError


class ConfigurationError(HoldfastError):
    """A setting or a permission is wrong."""

    code, exit_code = "E_CONFIG", 4


class Refused(ConfigurationError):
    """Changes on this store need its API key, and the key is missing or wrong."""

    code, http_status = "E_REFUSED", 403
    hint = "Set HOLDFAST_API_KEY to the key of this store."


class UnknownScheme(ConfigurationError):
    """The scheme of the URL is unknown."""

    code = "E_UNKNOWN_SCHEME"
    hint = "Use sqlite:///path/to/file.db or postgresql://user@host/database."


class MissingDriver(ConfigurationError):
    """The driver for this store is not installed."""

    code = "E_MISSING_DRIVER"
    hint = "Install Holdfast with its extra postgres: pip install '.[postgres]' in a clone of the repository."


class StoreMoved(ConfigurationError):
    """The store was copied to another, which replaces it: this one refuses every change."""

    code = "E_STORE_MOVED"
    hint = "Change the URL to that of the other store."


class SchemaTooNew(ConfigurationError):
    """A newer Holdfast created the store, and its schema does not support this version."""

    code = "E_SCHEMA_TOO_NEW"
    hint = "Upgrade Holdfast on this host."


#: The hint of commands that read a store which does not exist yet.
NO_STORE = (
    "Is the URL right? holdfast up, add and db migrate create a store, and so does the first enqueue of an application."
)


class SchemaMissing(ConfigurationError):
    """The store has no schema, or an older one, and this user may not change it."""

    code = "E_SCHEMA_MISSING"
    hint = "Run holdfast db migrate as the owner of the database, then start again."


class SchemaOutdated(ConfigurationError):
    """The schema of the store is older than this code needs."""

    code = "E_SCHEMA_OUTDATED"
    hint = "Migrate it with holdfast db migrate, or start a worker of this version."


class SchemaMismatch(ConfigurationError):
    """The schema of the store differs from its version: it was changed by hand, or a development version made it."""

    code = "E_SCHEMA_MISMATCH"
    hint = "See holdfast db check. Restore a backup, or undo the change."


class NotAStore(ConfigurationError):
    """The file exists and is not a SQLite database."""

    code = "E_NOT_A_STORE"
    hint = "Name another file. This one was not changed."


class StoreReadOnly(ConfigurationError):
    """The store can be read but not written."""

    code = "E_STORE_READ_ONLY"
    hint = "Check owner and mode of the file and of its directory."


class PrivilegeMissing(StoreReadOnly):
    """The database user has no right to a table that the call needs. Nothing was written."""

    code = "E_PRIVILEGE_MISSING"
    hint = "Grant the user a role of Holdfast that may: holdfast db roles lists them."


class NetworkFileSystem(ConfigurationError):
    """The file is on a network file system, where SQLite's locks do not work."""

    code = "E_NETWORK_FILE_SYSTEM"
    hint = "Use a local disk, or PostgreSQL for several hosts."


class OtherDatabase(ConfigurationError):
    """The caller's connection is to another database than this store."""

    code = "E_OTHER_DATABASE"
    hint = "Enqueue through a connection to the database that the app's URL names."


class StoreUnavailable(HoldfastError):
    """The store did not answer; the same call may work later."""

    code, exit_code, http_status, retryable = "E_STORE_UNAVAILABLE", 5, 503, True
    hint = "Is the database running, and does the URL lead to it? The same call may succeed later."


class StatementTimeout(StoreUnavailable):
    """A statement took too long and was cancelled; nothing was written."""

    code = "E_STATEMENT_TIMEOUT"
    hint = "Narrow the filter of a list, for example with --state, --queue or --since. Otherwise try again later."


class FormerPrimary(StoreUnavailable):
    """Only a former primary can be reached: since a failover another server has the store."""

    code = "E_FORMER_PRIMARY"
    hint = "Shut the old server down or make it a standby. If you went back on purpose, restart this process."


class ServerReadOnly(StoreUnavailable):
    """The database server refuses writes: it is a standby, or read-only; nothing was written."""

    code = "E_SERVER_READ_ONLY"
    hint = "After a failover, try again later. Otherwise name the primary in the URL."


class StoreFull(StoreUnavailable):
    """The disk of the store is full; nothing was written."""

    code = "E_STORE_FULL"
    hint = "Free some space, then try again. No write was left incomplete."


class StoreLocked(StoreUnavailable):
    """Another program keeps the SQLite file locked by a write transaction."""

    code = "E_STORE_LOCKED"
    hint = "Find the program with an open write transaction on the file, and commit it. Keep such transactions short."
