"""``token`` and ``audit-log``: access by people and programs, and the record of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import click
from msgspec import Struct

from holdfast.cli.command import CommandGroup, Items, command
from holdfast.cli.session import CliSession
from holdfast.cli.text import age, stamp, table
from holdfast.domain.access.roles import AuditEntry, Role
from holdfast.domain.access.tokens import Credential
from holdfast.output.printer import Line

_ROLES = "viewer looks, operator acts, admin adds programs and removes."


class TokenView(Struct, frozen=True):
    """A token without its secret, which the store does not keep."""

    name: str
    prefix: str
    role: Role
    made_by: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class TokenAddAnswer(Struct, frozen=True):
    """A new token; its secret *token* cannot be shown again."""

    name: str
    role: Role
    token: str


@click.group("token", cls=CommandGroup)
def token() -> None:
    """Make, list and revoke tokens for the dashboard and the API. The first one locks the door for good."""


@command("add", group=token, answers=TokenAddAnswer, changes=True)
@click.argument("name")
@click.option("--role", type=click.Choice([*map(str, Role)]), default="viewer", show_default=True, help=_ROLES)
def add(session: CliSession, *, name: str, role: str) -> None:
    """Make a token for the person or program NAME, and print it: it is never shown again."""
    credentials = session.actions.audited("token add", f"token={name}", note=role, changes=bool).credentials
    secret = credentials.add(name, Role(role), actor=session.actor)
    session.output.note("This is shown once; keep it where only its owner can read it.")
    session.output.value(TokenAddAnswer(name, Role(role), secret), lambda: [secret])


@command("ls", group=token, answers=Items("tokens", TokenView))
def ls(session: CliSession) -> None:
    """List tokens, revoked ones too."""
    session.output.items("tokens", [_token_view(each) for each in session.store.credentials.list()], _token_table)


@command("rm", group=token, answers=TokenView, changes=True)
@click.argument("name")
def rm(session: CliSession, *, name: str) -> None:
    """Revoke a token, by its name or prefix: from the next request on it opens nothing. The last one locks all out."""
    target = lambda revoked: f"token={revoked[0].name}"  # noqa: E731 - NAME may be a prefix
    view = _token_view(session.actions.audited("token rm", target).credentials.revoke(name))
    session.output.value(view, lambda: [f"{view.name} ({view.prefix}) is revoked"])


def _token_view(each: Credential) -> TokenView:
    times = (each.created_at, each.last_used_at, each.revoked_at)
    return TokenView(each.name, each.prefix, each.role, each.actor, *times)


def _token_table(views: Iterable[TokenView]) -> Iterator[Line]:
    def row(view: TokenView) -> list[str]:
        state = "revoked" if view.revoked_at else "open"
        return [view.name, view.prefix, view.role, state, age(view.created_at), age(view.last_used_at)]

    return table(("NAME", "PREFIX", "ROLE", "STATE", "MADE", "USED"), (row(view) for view in views))


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
    session.output.items("entries", entries, _audit_table)


def _audit_table(entries: Iterable[AuditEntry]) -> Iterator[Line]:
    def row(each: AuditEntry) -> list[str]:
        count = "" if each.count is None else f"{each.count:,}"
        return [stamp(each.at), each.actor, each.via, each.action, each.target, count, each.note or ""]

    return table(("WHEN", "WHO", "VIA", "VERB", "TARGET", "COUNT", "NOTE"), (row(each) for each in entries))
