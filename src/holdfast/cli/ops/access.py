"""``token`` and ``audit-log``: access by people and programs, and the record of it."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from holdfast.admin.views.access import audit_views
from holdfast.admin.views.masking import Masks
from holdfast.cli.command import CommandGroup, Items, command
from holdfast.cli.session import CliSession
from holdfast.cli.text import age, stamp, table
from holdfast.domain.access.roles import AuditEntry, Role
from holdfast.domain.access.tokens import Credential
from holdfast.output.printer import Line
from holdfast.settings import user_data
from holdfast.worker.metrics import parse_address

if TYPE_CHECKING:
    from holdfast.store import Store

#: How long a sign-in link can be used.
LINK_LIFETIME = timedelta(minutes=10)
_ROLES = "viewer reads, operator acts, admin adds commands and deletes."


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


class LinkAnswer(Struct, frozen=True):
    """A link that signs one person in, once, before *expires_at*."""

    link: str
    role: Role
    expires_at: datetime


class SignedOut(Struct, frozen=True):
    """The sessions of a person that were ended."""

    name: str
    sessions: int


@click.group("token", cls=CommandGroup)
def token() -> None:
    """Make, list and revoke tokens and sign-in links for the dashboard and the API."""


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
    """Revoke a token, by its name or prefix: it and its sessions fail from the next request on."""
    target = lambda revoked: f"token={revoked[0].name}"  # noqa: E731 - NAME may be a prefix
    view = _token_view(session.actions.audited("token rm", target).credentials.revoke(name))
    session.output.value(view, lambda: [f"{view.name} ({view.prefix}) is revoked"])


@command("link", group=token, answers=LinkAnswer, changes=True)
@click.option("--role", type=click.Choice([*map(str, Role)]), default="admin", show_default=True, help=_ROLES)
@click.option("--open", "opens", is_flag=True, help="Open it in a browser.")
def link(session: CliSession, *, role: str, opens: bool) -> None:
    """Print a link that signs one person in to the dashboard on this machine, once, within 10 minutes.

    The dashboard must run (holdfast web, or holdfast up --web) where the setting web says.
    """
    store = session.actions.audited("token link", f"link={role}", changes=bool)
    host, port = parse_address(session.setting("web"))
    scheme = "http" if session.setting("web_tls_cert") is None else "https"
    base = f"{scheme}://{host if host == 'localhost' else '127.0.0.1'}:{port}"
    address = sign_in_link(store, base, Role(role))
    if opens:
        open_link(address)
    answer = LinkAnswer(address, Role(role), datetime.now(UTC) + LINK_LIFETIME)
    session.output.value(answer, lambda: [address])


def sign_in_link(store: Store, base: str, role: Role) -> str:
    """A new sign-in link for the server at *base*."""
    return f"{base}/sign-in?link={store.sessions.add_link(role, lifetime=LINK_LIFETIME)}"


def open_link(link: str) -> None:
    """Open a sign-in link in a browser.

    Everybody on a machine can read the command lines of its processes, and use the link first. So the browser gets the
    name of a private file, which leads to it.
    """
    file = user_data(os.environ) / "sign-in.html"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    with open(file, "x", encoding="utf-8", opener=partial(os.open, mode=0o600)) as page:
        page.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={link}"><title>Holdfast</title>\n')
    webbrowser.open(file.as_uri())


@command("sign-out", group=token, answers=SignedOut, changes=True)
@click.argument("name")
def sign_out(session: CliSession, *, name: str) -> None:
    """End all sessions of a person, on every server. A token of that name stays valid."""
    closed = session.actions.audited("token sign-out", f"person={name}").sessions.close_all(name)
    session.output.value(SignedOut(name, closed), lambda: [f"sessions of {name} that were ended: {closed}"])


def _token_view(each: Credential) -> TokenView:
    times = (each.created_at, each.last_used_at, each.revoked_at)
    return TokenView(each.name, each.prefix, each.role, each.actor, *times)


def _token_table(views: Iterable[TokenView]) -> Iterator[Line]:
    def row(view: TokenView) -> list[str]:
        state = "revoked" if view.revoked_at else "open"
        return [view.name, view.prefix, view.role, state, age(view.created_at), age(view.last_used_at)]

    return table(("NAME", "PREFIX", "ROLE", "STATE", "MADE", "USED"), (row(view) for view in views))


@command("audit-log", answers=Items("entries", AuditEntry))
@click.option(
    "-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 5000), help="Maximum number of rows."
)
@click.option("--actor", metavar="NAME", help="Only what this person did.")
@click.option("--about", metavar="TEXT", help="Only what was done to a target that holds this text.")
def audit_log(session: CliSession, *, limit: int, actor: str | None, about: str | None) -> None:
    """List what people did, from the command line, the pages and the API; the newest first.

    \b
    Examples:
      holdfast audit-log
      holdfast audit-log --actor ada --about queue=mail
    """
    entries = audit_views(session.store, Masks(session.store), limit=limit, actor=actor, text=about)
    session.output.items("entries", entries, _audit_table)


def _audit_table(entries: Iterable[AuditEntry]) -> Iterator[Line]:
    def row(each: AuditEntry) -> list[str]:
        count = "" if each.count is None else f"{each.count:,}"
        return [stamp(each.at), each.actor, each.via, each.action, each.target, count, each.note or ""]

    return table(("WHEN", "WHO", "VIA", "ACTION", "TARGET", "COUNT", "NOTE"), (row(each) for each in entries))
