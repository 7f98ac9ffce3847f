"""Migrations of the schema, their checksums, and the comparison of a schema with the one that they created.

The ``schema.py`` of each backend applies them.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from holdfast.errors import SchemaMismatch, SchemaTooNew
from holdfast.store.engine import sql
from holdfast.store.engine.backend import SCHEMA_VERSION

#: All tables except ``meta`` and ``job_tag``, which triggers keep, in an order that satisfies their foreign keys.
TABLES = (
    *("secret_field", "kind", "queue", "stop_switch", "command_switch", "worker", "job", "live", "finished"),
    *("dependency", "pending_effect", "key", "attempt", "event", "progress", "step"),
    *("batch", "batch_event", "batch_tally", "deleted_batch", "unit", "unit_count", "in_flight", "inbox"),
    *("schedule", "plan", "skipped_plan"),
    *("memory_profile", "autoscaler_decision"),
    *("audit_entry", "credential", "session", "secret", "saved_filter", "idempotency_key", "trace"),
)

#: The first line of a migration whose statements run outside a transaction, each on its own. They create or drop
#: indexes of PostgreSQL with CONCURRENTLY and IF [NOT] EXISTS: writers do not wait, and a second run is harmless.
CONCURRENT = "-- migration: concurrent"
#: The columns, indexes, functions, triggers and views of a schema, each with its definition or a hash of it.
Objects = Mapping[str, str]


class Migration(Struct, frozen=True):
    """One step from a version of the schema to the next."""

    number: int
    text: str

    @property
    def checksum(self) -> str:
        """Every process computes it: a digest would load OpenSSL."""
        return f"{zlib.crc32(self.text.encode()):08x}"

    @property
    def concurrent(self) -> bool:
        return self.text.startswith(CONCURRENT)

    @property
    def statements(self) -> list[str]:
        """The statements of a concurrent migration."""
        lines = (line for line in self.text.splitlines() if not line.lstrip().startswith("--"))
        return [statement.strip() for statement in "\n".join(lines).split(";") if statement.strip()]


class SchemaMeta(Struct, frozen=True):
    """The version of a store, the oldest code that it accepts, its id, and the checksums of its migrations."""

    version: int
    oldest_code: int
    installation: str
    checksums: Mapping[str, str]


class OpenedSchema(Struct, frozen=True):
    """The id of the installation, and the numbers of the migrations that were applied.

    *fits*: false for the store of a development version, which can only be copied.
    """

    installation: str
    applied: list[int]
    fits: bool = True


class SchemaRecord(Struct, frozen=True):
    """What the store recorded with its last migration: the checksums of all migrations by number, and all objects."""

    checksums: dict[str, str]
    objects: dict[str, str]


def all_migrations(backend: str) -> list[Migration]:
    """The migrations of a backend, oldest first."""
    return [Migration(number, text) for number, text in enumerate(sql.migrations(backend), start=1)]


def schema_problems(backend: str, record: SchemaRecord, present: Objects, *, essential: bool = False) -> list[str]:
    """Differences between the schema of this code's version and the *present* one.

    Objects that people have added are not reported. *essential* leaves out definitions of indexes and functions:
    different ones do not make statements fail.
    """
    problems = [
        f"migration {each.number} of this code is not the one that the store was migrated with"
        for each in all_migrations(backend)
        if record.checksums.get(str(each.number)) not in (None, each.checksum)
    ]
    for name, definition in record.objects.items():
        if name not in present:
            problems.append(f"{name} is missing")
        elif present[name] != definition and name.startswith("column "):
            problems.append(f"{name} is {present[name]}, not {definition}")
        elif present[name] != definition and not essential:
            problems.append(f"{name} has another definition")
    return problems


#: Tables that a store has besides those of :data:`TABLES`.
OTHER_TABLES = ("meta", "epoch", "expired_range", "job_tag", "timeline", "test_clock")
_COPY = (
    "Stop all that uses it. Write its jobs to a new store with holdfast db backup NEW.db. Then use that file, or"
    " copy it to an empty database with holdfast db copy. See Upgrades in the guide Production."
)
_FINISH = "Finish its jobs with the code that made it, then begin a new store."


def fits(backend: str, meta: SchemaMeta) -> bool:
    """Whether released code, or this, made the store. A released migration is never edited, so its checksum stays."""
    ours = [each for each in all_migrations(backend) if each.number <= meta.version]
    return all(meta.checksums.get(str(each.number)) == each.checksum for each in ours)


def refuse_development(tables: Collection[str]) -> None:
    """Refuse the store of a development version. The hint is a copy, if both versions have the same tables."""
    text = "a development version of Holdfast made this store, and this version cannot use its schema"
    raise SchemaMismatch(text, hint=_FINISH if renamed(TABLES, set(tables) - {*OTHER_TABLES}) else _COPY)


def renamed(ours: Iterable[str], theirs: Iterable[str]) -> list[str]:
    """The names that only *theirs* has, if there are others that only *ours* has: a copy by name might lose them."""
    unknown = set(theirs) - set(ours)
    return sorted(unknown) if set(ours) - set(theirs) else []


def require_same_names(label: str, ours: Iterable[str], theirs: Iterable[str]) -> None:
    """Refuse to copy tables or columns of a development version by name, if some may have been renamed."""
    if unknown := renamed(ours, theirs):
        text = f"{label} cannot be copied by name: this code does not know {', '.join(unknown)}"
        raise SchemaMismatch(text, hint=_FINISH)


def refuse_newer(meta: SchemaMeta) -> None:
    """Refuse a schema that needs newer code than this."""
    version, oldest_code = meta.version, meta.oldest_code
    if oldest_code > SCHEMA_VERSION:
        text = f"the store has schema {version}, which needs code for schema {oldest_code}; this is {SCHEMA_VERSION}"
        raise SchemaTooNew(text, version=version, code=SCHEMA_VERSION)
