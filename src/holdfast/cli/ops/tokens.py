"""``token``: access of people and programs to the dashboard and the API."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from holdfast.admin.views.access import TokenView, token_view, token_views
from holdfast.cli.command import CommandGroup, Items, command
from holdfast.cli.session import CliSession
from holdfast.cli.text import Column, Table, age_column, time_column, with_table
from holdfast.domain.access.roles import Role
from holdfast.domain.access.tokens import parse_scope
from holdfast.domain.names import parse_address
from holdfast.settings import user_data

if TYPE_CHECKING:
    from holdfast.store import Store

#: How long a sign-in link can be used.
LINK_LIFETIME = timedelta(minutes=10)
_ROLES = "A viewer reads, an operator performs actions, an admin also adds commands and deletes."

TOKENS: Table[TokenView] = Table(
    (
        Column("NAME", lambda view: view.name),
        Column("PREFIX", lambda view: view.prefix),
        Column("ROLE", lambda view: view.role),
        Column("SCOPE", lambda view: view.scope or "", wide=True),
        Column("STATE", lambda view: "revoked" if view.revoked_at else "open"),
        age_column("MADE", lambda view: view.created_at),
        Column("MADE BY", lambda view: view.made_by, wide=True),
        age_column("USED", lambda view: view.last_used_at),
        time_column("REVOKED", lambda view: view.revoked_at, wide=True),
    )
)


class TokenAddAnswer(Struct, frozen=True):
    """A new token; its secret *token* cannot be shown again."""

    name: str
    role: Role
    scope: str | None
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
    """Create, list and revoke tokens and sign-in links for the dashboard and the API."""


@command("add", group=token, answers=TokenAddAnswer, changes=True)
@click.argument("name")
@click.option(
    "--role", type=click.Choice([*map(str, Role)]), help=f"{_ROLES}  [default: viewer; of an inbox: operator]"
)
@click.option(
    "--scope", metavar="inbox=NAME", help="Limit the token to one inbox: it takes, accepts and refuses there."
)
def add(session: CliSession, *, name: str, role: str | None, scope: str | None) -> None:
    """Create a token for the person or program NAME, and print it.

    It is never shown again. A person signs in to the dashboard with it; a program sends it to the API. A token with a
    scope cannot sign in, and reads nothing else.

    Examples:
      holdfast token add ada --role operator
      holdfast token add ada-browser --scope inbox=pickup/ada
    """
    inbox = None if scope is None else parse_scope(scope)
    granted = Role(role) if role else Role.VIEWER if inbox is None else Role.OPERATOR
    note = f"{granted} {scope}" if scope else granted
    credentials = session.actions.audited("token add", f"token={name}", note=note, changes=bool).credentials
    secret = credentials.add(name, granted, actor=session.actor, inbox=inbox)
    session.output.note("This is shown once; keep it where only its owner can read it.")
    session.output.value(TokenAddAnswer(name, granted, scope, secret), lambda: [secret])


@command("ls", group=token, answers=Items("tokens", TokenView))
@with_table(TOKENS)
def ls(session: CliSession, *, table: Table[TokenView]) -> None:
    """List tokens, including revoked ones.

    Examples:
      holdfast token ls
    """
    session.output.items("tokens", token_views(session.store), table.lines)


@command("rm", group=token, answers=TokenView, changes=True)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def rm(session: CliSession, *, name: str, yes: bool) -> None:
    """Revoke a token by its name or prefix. It and its sessions fail from the next request on.

    Examples:
      holdfast token rm ada --yes
    """
    for view in token_views(session.store):
        if name in (view.name, view.prefix) and view.revoked_at is None:
            session.confirm(f"revoke the token {view.name} ({view.prefix})", yes=yes)
    target = lambda revoked: f"token={revoked[0].name}"  # noqa: E731 - NAME may be a prefix
    view = token_view(session.actions.audited("token rm", target).credentials.revoke(name))
    session.output.value(view, lambda: [f"{view.name} ({view.prefix}) is revoked"])


@command("link", group=token, answers=LinkAnswer, changes=True)
@click.option("--role", type=click.Choice([*map(str, Role)]), default="admin", show_default=True, help=_ROLES)
@click.option("--open", "opens", is_flag=True, help="Open the dashboard in a browser.")
def link(session: CliSession, *, role: str, opens: bool) -> None:
    """Print a link that signs one person in to the dashboard.

    It works once, for 10 minutes. The dashboard must run on this machine, at the address of the setting web (holdfast
    web, or holdfast up --web).

    Examples:
      holdfast token link --open
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
    import webbrowser

    webbrowser.open(file.as_uri())


@command("sign-out", group=token, answers=SignedOut, changes=True)
@click.argument("name")
def sign_out(session: CliSession, *, name: str) -> None:
    """End all sessions of a person, on every server.

    A token of that name stays valid: revoke it with holdfast token rm.

    Examples:
      holdfast token sign-out ada
    """
    closed = session.actions.audited("token sign-out", f"person={name}").sessions.close_all(name)
    session.output.value(SignedOut(name, closed), lambda: [f"sessions of {name} that were ended: {closed}"])
