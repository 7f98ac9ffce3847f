"""``audit-log``: the record of what people did."""

from __future__ import annotations

import click

from holdfast.admin.views.access import audit_views
from holdfast.cli.command import Items, command, limit_option
from holdfast.cli.session import CliSession
from holdfast.cli.text import Column, Table, time_column, with_table
from holdfast.domain.access.audit import AuditEntry
from holdfast.domain.quantities import local_times

AUDIT_ENTRIES: Table[AuditEntry] = Table(
    (
        Column("ID", lambda entry: entry.id, wide=True),
        time_column("WHEN", lambda entry: entry.at),
        Column("WHO", lambda entry: entry.actor),
        Column("OS USER", lambda entry: entry.os_user),
        Column("DB USER", lambda entry: entry.db_user, wide=True),
        Column("VIA", lambda entry: entry.via),
        Column("ACTION", lambda entry: entry.action),
        Column("TARGET", lambda entry: entry.target),
        Column("COUNT", lambda entry: None if entry.count is None else f"{entry.count:,}", lambda entry: entry.count),
        Column("NOTE", lambda entry: entry.note and local_times(entry.note), lambda entry: entry.note),
    )
)


@command("audit-log", answers=Items("entries", AuditEntry))
@limit_option(50, 5000)
@click.option("--actor", metavar="NAME", help="Only actions of this person.")
@click.option("--about", metavar="TEXT", help="Only actions on targets that contain this text.")
@with_table(AUDIT_ENTRIES)
def audit_log(
    session: CliSession, *, limit: int, actor: str | None, about: str | None, table: Table[AuditEntry]
) -> None:
    """List who did what on the command line, the pages and the API, newest first.

    Examples:
      holdfast audit-log
      holdfast audit-log --actor ada --about queue=mail
    """
    entries = audit_views(session.store, limit=limit, actor=actor, text=about)
    session.output.items("entries", entries, table.lines)
