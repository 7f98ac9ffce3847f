"""``db`` with its sub-commands: maintenance of the store as a whole."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click
from msgspec import Struct

from holdfast.admin.actions.actions import Actions
from holdfast.admin.actions.changed import count_objects
from holdfast.cli.command import CommandGroup, command
from holdfast.cli.session import CliSession
from holdfast.cli.text import table
from holdfast.domain.access.audit import Via
from holdfast.domain.access.masking import SecretField, mask_store_url
from holdfast.domain.store_url import sqlite_url
from holdfast.errors import InvalidInput, NotAStore
from holdfast.store import open_store
from holdfast.store.engine.backend import SCHEMA_VERSION
from holdfast.store.engine.database import Finding, Vacuumed

UNSOUND_EXIT = 1


class MigrateAnswer(Struct, frozen=True):
    """The version of the schema after the *applied* migrations."""

    schema: int
    server: str
    applied: list[int]


class CheckAnswer(Struct, frozen=True):
    """The results of all checks; *sound* if none failed."""

    sound: bool
    findings: list[Finding]


class BackupAnswer(Struct, frozen=True):
    """A backup file and its size."""

    file: str
    bytes: int


class RolesAnswer(Struct, frozen=True):
    """The statements that create the roles; *applied* if they were run."""

    statements: list[str]
    applied: bool


class CommandsAnswer(Struct, frozen=True):
    """Whether workers of the store may run commands."""

    commands: bool


class SecretsAnswer(Struct, frozen=True):
    """The fields of kinds that views mask because code has declared them."""

    fields: list[SecretField]


class CopyAnswer(Struct, frozen=True):
    """The number of rows in each table of the target."""

    target: str
    rows: dict[str, int]


@click.group("db", cls=CommandGroup)
def db() -> None:
    """Migrate, check, back up, vacuum or move the store."""


@command("migrate", group=db, answers=MigrateAnswer, changes=True)
def migrate(session: CliSession) -> None:
    """Create the store, or bring its schema up to date. A worker does the same when it starts.

    Other commands refuse a store with an older schema (exit 4). Claims wait for seconds at most: while another
    transaction, such as a dump, locks tables, a migration gives up and tries again.

    Examples:
      holdfast db migrate --url postgresql://localhost/shop
    """
    session.may_migrate = True
    applied = session.store.backend.migrated
    if applied:
        session.actions.record("db migrate", f"schema={SCHEMA_VERSION}")
    answer = MigrateAnswer(SCHEMA_VERSION, session.store.database.tools.server, applied)
    text = f"migrations applied: {', '.join(map(str, applied))}" if applied else "nothing to do"
    session.output.value(answer, lambda: [f"schema {answer.schema} on {answer.server}; {text}"])


@command("check", group=db, answers=CheckAnswer)
def check(session: CliSession) -> int:
    """Check the database for damage and for contradictions.

    It reads every row. Exit 1 if a check fails. For a quick check of the environment, use holdfast doctor.

    Examples:
      holdfast db check --url sqlite:///backup.db
    """
    try:
        findings = session.store.database.check()
    except NotAStore as error:
        findings = [Finding("the file is a store", ok=False, detail=error.message)]
    sound = all(finding.ok for finding in findings)
    rows = [["ok" if finding.ok else "WRONG", finding.check, finding.detail] for finding in findings]
    session.output.value(CheckAnswer(sound, findings), lambda: table(("", "CHECK", "DETAIL"), rows))
    return 0 if sound else UNSOUND_EXIT


@command("backup", group=db, answers=BackupAnswer)
@click.argument("file", type=click.Path(path_type=Path))
def backup(session: CliSession, *, file: Path) -> None:
    """Write a consistent copy of the store to a new SQLite FILE.

    Jobs continue meanwhile. The file is a store: open it with --url sqlite:///FILE, or copy it to PostgreSQL with
    holdfast db copy. It has the schema of this version, also if a development version made the store.

    Examples:
      holdfast db backup backup.db
    """
    session.any_schema = True
    size = session.store.database.backup(file)
    try:
        if session.store.backend.fits:
            session.actions.record("db backup", f"file={file.absolute()}")
        else:  # this code cannot write to it
            with closing(open_store(sqlite_url(file.absolute()))) as copy:
                actions = Actions(copy, actor=session.actor, via=Via.CLI)
                actions.record("db backup", f"from={mask_store_url(session.url)}")
    except BaseException:
        file.unlink()  # no copy of all jobs without an entry in the audit log
        raise
    session.output.value(BackupAnswer(str(file), size), lambda: [f"{file}: {format_size(size)}"])


@command("vacuum", group=db, answers=Vacuumed, changes=True)
def vacuum(session: CliSession) -> None:
    """Return the space of deleted rows to the disk. On SQLite, writers wait meanwhile.

    Examples:
      holdfast db vacuum
    """
    answer = session.store.database.vacuum()
    session.actions.record("db vacuum", f"schema={SCHEMA_VERSION}")
    session.output.value(answer, lambda: [f"{format_size(answer.before)} before, {format_size(answer.after)} after"])


@command("roles", group=db, answers=RolesAnswer, changes=True)
@click.option(
    "--apply",
    is_flag=True,
    help="Run the statements, as the owner of the schema. To create missing roles, it needs CREATEROLE.",
)
def roles(session: CliSession, *, apply: bool) -> None:
    """Print the SQL for PostgreSQL roles with few privileges.

    Roles:
      SCHEMA_reader            reads everything except secrets
      SCHEMA_producer          enqueues jobs of registered kinds, waits for them, and reads the results of its own
      SCHEMA_command_producer  also adds commands
      SCHEMA_worker            runs jobs, batches and schedules, and prunes old rows; no tokens, no audit entries
      SCHEMA_operator          the rights of a worker, and all actions of the command line, with their audit entries
      SCHEMA_dashboard         the same, and sessions: for holdfast web
      SCHEMA_admin             also tokens, backups, and holdfast db commands

    None of them may log in or change the schema: grant them to your users. Migrations keep their privileges up to
    date.

    Examples:
      holdfast db roles
      holdfast db roles --apply
    """
    tools = session.store.database.tools
    if not hasattr(tools, "roles"):
        raise InvalidInput("a SQLite file has no roles", hint="Its owner alone can read it.")
    statements: list[str] = tools.apply_roles() if apply else tools.roles()  # type: ignore[attr-defined]
    if apply:
        session.actions.record("db roles", f"schema={SCHEMA_VERSION}")
    session.output.value(RolesAnswer(statements, apply), lambda: [f"{statement};" for statement in statements])


@command("commands", group=db, answers=CommandsAnswer, changes=True)
@click.argument("switch", type=click.Choice(["on", "off"]), required=False)
def commands(session: CliSession, *, switch: str | None) -> None:
    """Show or set whether workers of this store may run commands.

    While it is off, new commands are refused, and a command that a worker claims fails at once. Jobs of applications
    run as before. To switch commands off for one worker, start it with holdfast worker --run-commands off.

    Examples:
      holdfast db commands
      holdfast db commands off
    """
    if switch is not None:
        target = session.actions.audited("db commands", f"commands={switch}")
        target.command_switch.set(on=switch == "on")
    is_on = session.store.command_switch.is_on()
    session.output.value(CommandsAnswer(is_on), lambda: [f"commands are {'on' if is_on else 'off'}"])


@command("secrets", group=db, answers=SecretsAnswer, changes=True)
@click.option(
    "--reveal",
    nargs=2,
    metavar="KIND FIELD",
    help="Show this field of a kind again, also in old jobs and their logs.",
)
def secrets(session: CliSession, *, reveal: tuple[str, str] | None) -> None:
    """List the secret fields of kinds, or show one again.

    A field that code has declared with secrets=[...] stays secret, whatever code publishes its kind later. While the
    published kind declares it, --reveal is refused (exit 9). On PostgreSQL it needs the role of an admin.

    Examples:
      holdfast db secrets
      holdfast db secrets --reveal shop.pay reference
    """
    if reveal is not None:
        kind, field = reveal
        session.actions.audited("db secrets", f"kind={kind} reveal={field}").kinds.reveal(kind, field)
    fields = session.store.kinds.secret_fields()
    session.output.value(
        SecretsAnswer(fields), lambda: table(["KIND", "FIELD"], [(each.kind, each.name) for each in fields])
    )


@command("copy", group=db, answers=CopyAnswer, changes=True)
@click.argument("target", metavar="URL")
def copy(session: CliSession, *, target: str) -> None:
    """Move a SQLite store to the PostgreSQL database at URL.

    All jobs keep their ids and their history. Stop all workers first: while one is alive, nothing is copied (exit 9).
    The target must have no jobs. Afterwards the old file refuses every change, so that no job is lost in it.
    --verbose lists the tables.

    Examples:
      holdfast db copy postgresql://localhost/shop --url sqlite:///shop.db
    """

    def report(table: str, count: int) -> None:
        if session.flags.get("verbose"):
            session.output.note(f"{table}: {count:,} rows")

    place = mask_store_url(target)
    with closing(open_store(target)) as store:
        rows = session.store.database.move_to(store.database, place, report=report)
        Actions(store, actor=session.actor, via=Via.CLI).record("db copy", f"from={mask_store_url(session.url)}")
    tables = sum(1 for count in rows.values() if count)
    summary = f"{count_objects(rows['job'], 'job')} copied, {sum(rows.values()):,} rows of {tables} tables in all"
    session.output.value(CopyAnswer(place, rows), lambda: [f"{summary}; from now on use {place}"])


def format_size(size: int) -> str:
    """A number of bytes in powers of 1000."""
    amount = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
