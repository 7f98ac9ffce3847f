"""Migrations of the schema, their checksums, and the comparison of a schema with the one that they created.

The ``schema.py`` of each backend applies them.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from holdfast.errors import SchemaTooNew
from holdfast.store.engine import sql
from holdfast.store.engine.backend import SCHEMA_VERSION

#: All tables except ``meta`` and ``job_tag``, which triggers keep, in an order that satisfies their foreign keys.
TABLES = (
    *("kind", "queue", "stop_switch", "command_switch", "worker", "job", "live", "finished"),
    *("dependency", "pending_effect", "key", "attempt", "event", "progress", "step"),
    *("batch", "batch_event", "deleted_batch", "unit", "unit_count", "in_flight", "inbox"),
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
        import hashlib  # it loads OpenSSL

        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def concurrent(self) -> bool:
        return self.text.startswith(CONCURRENT)

    @property
    def statements(self) -> list[str]:
        """The statements of a concurrent migration."""
        lines = (line for line in self.text.splitlines() if not line.lstrip().startswith("--"))
        return [statement.strip() for statement in "\n".join(lines).split(";") if statement.strip()]


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


def refuse_newer(version: int, oldest_code: int) -> None:
    """Refuse a schema that needs newer code than this."""
    if oldest_code > SCHEMA_VERSION:
        text = f"the store has schema {version}, which needs code for schema {oldest_code}; this is {SCHEMA_VERSION}"
        raise SchemaTooNew(text, version=version, code=SCHEMA_VERSION)
