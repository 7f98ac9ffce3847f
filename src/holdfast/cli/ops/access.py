"""``acts`` and ``token``: who did what, and who may do what from afar."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import click
from msgspec import Struct

from holdfast.cli.command import CommandGroup, Items, command
from holdfast.cli.session import Session
from holdfast.cli.text import age, stamp, table
from holdfast.domain.access.roles import AuditEntry, Credential, Role
from holdfast.output.printer import Line


class TokenView(Struct, frozen=True):
    """A token: its public prefix, its role, and when it was used last. Its secret is nowhere."""

    name: str
    prefix: str
    role: Role
    made_by: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class Made(Struct, frozen=True):
    """A new token; *token* cannot be shown again."""

    name: str
    role: Role
    token: str


@command("acts", answers=Items("acts", AuditEntry))
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 5000), help="At most so many.")
@click.option("--actor", metavar="NAME", help="Only what this person did.")
@click.option("--about", metavar="TEXT", help="Only what was done to a target that holds this text.")
def acts(session: Session, *, limit: int, actor: str | None, about: str | None) -> None:
    """List what people did, from the command line, the pages and the API; the newest first.

    \b
    Examples:
      holdfast acts
      holdfast acts --actor ada --about queue=mail
    """
    found = session.store.audit_log.page(limit=limit, actor=actor, text=about)
    session.output.items("acts", found, _act_table)


def _act_table(found: Iterable[AuditEntry]) -> Iterator[Line]:
    def row(act: AuditEntry) -> list[str]:
        count = "" if act.count is None else f"{act.count:,}"
        return [stamp(act.at), act.actor, act.via, act.action, act.target, count, act.note or ""]

    return table(("WHEN", "WHO", "VIA", "VERB", "TARGET", "COUNT", "NOTE"), (row(act) for act in found))


@click.group("token", cls=CommandGroup)
def token() -> None:
    """Make, list and revoke tokens for the dashboard and the API. The first one locks the door for good."""


@command("add", answers=Made, changes=True)
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([str(role) for role in Role]),
    default="viewer",
    show_default=True,
    help="viewer looks, operator acts, admin adds programs and removes.",
)
def add(session: Session, *, name: str, role: str) -> None:
    """Make a token for the person or program NAME, and print it: it is never shown again."""
    text = session.store.credentials.add(name, Role(role), actor=session.actor)
    session.actions.did("token add", f"token={name}", note=role)
    session.output.note("This is shown once; keep it where only its owner can read it.")
    session.output.value(Made(name, Role(role), text), lambda: [text])


@command("ls", answers=Items("tokens", TokenView))
def ls(session: Session) -> None:
    """List tokens, revoked ones too."""
    session.output.items("tokens", [_facts(each) for each in session.store.credentials.list()], _token_table)


@command("rm", answers=TokenView, changes=True)
@click.argument("name")
def rm(session: Session, *, name: str) -> None:
    """Revoke a token, by its name or prefix: from the next request on it opens nothing. The last one locks all out."""
    gone = _facts(session.store.credentials.revoke(name))
    session.actions.did("token rm", f"token={gone.name}")
    session.output.value(gone, lambda: [f"{gone.name} ({gone.prefix}) is revoked"])


for _command in (add, ls, rm):
    token.add_command(_command)


def _facts(found: Credential) -> TokenView:
    return TokenView(
        name=found.name,
        prefix=found.prefix,
        role=found.role,
        made_by=found.actor,
        created_at=found.created_at,
        last_used_at=found.last_used_at,
        revoked_at=found.revoked_at,
    )


def _token_table(found: Iterable[TokenView]) -> Iterator[Line]:
    def row(each: TokenView) -> list[str]:
        state = "revoked" if each.revoked_at else "open"
        return [each.name, each.prefix, each.role, state, age(each.created_at), age(each.last_used_at)]

    return table(("NAME", "PREFIX", "ROLE", "STATE", "MADE", "USED"), (row(each) for each in found))
