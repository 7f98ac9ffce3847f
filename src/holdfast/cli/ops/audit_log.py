"""``audit-log``: the audit entries of people's actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from holdfast.cli.command import Items, command
from holdfast.cli.session import CliSession
from holdfast.cli.text import stamp, table
from holdfast.domain.access.roles import AuditEntry
from holdfast.output.printer import Line


@command("audit-log", answers=Items("entries", AuditEntry))
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 5000), help="At most so many.")
@click.option("--actor", metavar="NAME", help="Only what this person did.")
@click.option("--about", metavar="TEXT", help="Only what was done to a target that holds this text.")
def audit_log(session: CliSession, *, limit: int, actor: str | None, about: str | None) -> None:
    """List what people did, from the command line, the pages and the API; the newest first.

    \b
    Examples:
      holdfast audit-log
      holdfast audit-log --actor ada --about queue=mail
    """
    entries = session.store.audit_log.page(limit=limit, actor=actor, text=about)
    session.output.items("entries", entries, _table)


def _table(entries: Iterable[AuditEntry]) -> Iterator[Line]:
    def row(each: AuditEntry) -> list[str]:
        count = "" if each.count is None else f"{each.count:,}"
        return [stamp(each.at), each.actor, each.via, each.action, each.target, count, each.note or ""]

    return table(("WHEN", "WHO", "VIA", "VERB", "TARGET", "COUNT", "NOTE"), (row(each) for each in entries))
