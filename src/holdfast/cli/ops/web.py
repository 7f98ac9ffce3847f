"""``web``: the dashboard and the HTTP API."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from holdfast.cli.command import command, with_options
from holdfast.cli.ops.tokens import open_link, sign_in_link
from holdfast.cli.ops.worker import LOG, logs_json, print_notice, start_log
from holdfast.cli.session import CliSession, load_app
from holdfast.domain.access.roles import Role
from holdfast.errors import ConfigurationError, Refused
from holdfast.store import open_store

if TYPE_CHECKING:
    from holdfast.web.server import Server


class WebAnswer(Struct, frozen=True):
    """The address of the server, printed when it stops."""

    address: str


@command("web", answers=WebAnswer)
@click.option("--app", metavar="MODULE:APP", help="Application whose store to show; it lists the scopes of schedules.")
@click.option("--listen", "web", metavar="HOST:PORT", help="Address to listen on. [127.0.0.1:8320]")
@click.option("--tls-cert", "web_tls_cert", metavar="FILE", help="Serve HTTPS with this certificate chain (PEM).")
@click.option("--tls-key", "web_tls_key", metavar="FILE", help="Private key of the certificate (PEM).")
@click.option("--open", "opens", is_flag=True, help="Open the sign-in link in a browser.")
@with_options(*LOG)
def web(session: CliSession, *, opens: bool, **flags: Any) -> None:
    """Serve the dashboard and the HTTP API until a signal arrives.

    It listens on this machine only and prints a link that signs you in. The link works once, for 10 minutes; print
    another with holdfast token link. Create tokens for other people with holdfast token add; it listens on another
    address only if a token exists. The store of --url must exist: web does not create it.

    Examples:
      holdfast web --open
      holdfast token add ada --role admin && holdfast web --listen 0.0.0.0:8320
    """
    settings = start_log(session, flags)
    if settings["app"] is None and session.named_url is not None:
        # A typo in the name of a store would otherwise show the dashboard of a new, empty store.
        open_store(session.named_url, create=False).close()
    with closing(load_app(settings["app"], url=session.url_flag)) as app:
        server = build_server(session, app, settings["web"], flags)
        print_notice(f"the dashboard of {server.site.location} is at {server.url}")
        link = print_link(session, server)
        if opens and link is not None:
            open_link(link)
        server.run()
    session.output.value(WebAnswer(server.url), lambda: ())


def print_link(session: CliSession, server: Server) -> str | None:
    """Print a link that signs in, for a server on this machine. A log that others may read does not get it."""
    if not server.is_local:
        return None
    if logs_json() or _is_journal(2):
        print_notice("for a sign-in link: holdfast token link")
        return None
    try:
        session.check_key()
        role = Role.ADMIN
    except Refused:  # HTTP must not bypass the key of the command line
        role = Role.VIEWER
    link = sign_in_link(server.site.app.store, server.url, role)
    print_notice(f"sign in once within 10 minutes: {link}")
    return link


def _is_journal(descriptor: int) -> bool:
    """Whether systemd's journal reads this stream."""
    status = os.fstat(descriptor)
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def build_server(session: CliSession, app: Any, address: str, flags: dict[str, Any] | None = None) -> Server:
    """Build the configured server; it already listens. Raises ConfigurationError if no person could sign in."""
    try:
        from holdfast.web.server import Server
    except ImportError as error:
        hint = "Install Holdfast with its extra web: pip install '.[web]' in a clone of the repository."
        raise ConfigurationError(f"the dashboard needs more packages: {error}", hint=hint) from error
    return Server(
        app,
        address,
        hosts=session.setting("web_hosts"),
        tls=_tls(session, flags or {}),
        secure=session.setting("web_secure") == "on",
        proxy_header=session.setting("web_proxy_header"),
        proxy_from=session.setting("web_proxy_from"),
        proxy_role=session.setting("web_proxy_role"),
        proxy_groups_header=session.setting("web_proxy_groups_header"),
        proxy_roles=session.setting("web_proxy_roles"),
    )


def _tls(session: CliSession, flags: dict[str, Any]) -> tuple[str, str] | None:
    """The files of the certificate and of its key."""
    files = tuple(session.setting(name, flags.get(name)) for name in ("web_tls_cert", "web_tls_key"))
    if None in files and any(files):
        raise ConfigurationError("HTTPS needs a certificate and its key", hint="Give --tls-cert and --tls-key.")
    return None if None in files else files
