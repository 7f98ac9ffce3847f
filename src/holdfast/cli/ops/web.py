"""``web``: the dashboard and the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from holdfast.cli.command import command, with_options
from holdfast.cli.ops.worker import APP, LOG, print_notice, start_log
from holdfast.cli.session import CliSession, load_app
from holdfast.errors import ConfigurationError
from holdfast.store import open_store

if TYPE_CHECKING:
    from holdfast.web.server import Server


class WebAnswer(Struct, frozen=True):
    """The address of the server, printed when it stops."""

    address: str


@command("web", answers=WebAnswer)
@APP
@click.option("--listen", "web", metavar="HOST:PORT", help="Where to listen. [127.0.0.1:8320]")
@with_options(*LOG)
def web(session: CliSession, **flags: Any) -> None:
    """Serve the dashboard and the HTTP API until told to stop.

    It listens on this machine alone, where anybody may look and act until the first token is made (holdfast token add).
    Another address is refused while nobody would be asked for a token, and so is a named store that is not there.

    \b
    Examples:
      holdfast web
      holdfast web --listen 0.0.0.0:8320
    """
    settings = start_log(session, flags)
    if settings["app"] is None and session.named_url is not None:
        # A typo in the name of a store would otherwise show the dashboard of a new, empty store.
        open_store(session.named_url, create=False).close()
    app = load_app(settings["app"], url=session.url_flag)
    server = build_server(session, app, settings["web"])
    print_notice(f"the dashboard of {server.site.location} is at {server.url}")
    server.run()
    session.output.value(WebAnswer(server.url), lambda: ())


def build_server(session: CliSession, app: Any, address: str) -> Server:
    """Build the configured server; it already listens. Raises ConfigurationError for an open, unprotected address."""
    try:
        from holdfast.web.server import Server
    except ImportError as error:
        hint = "Install it with: pip install 'holdfast[web]'"
        raise ConfigurationError(f"the dashboard needs more packages: {error}", hint=hint) from error
    return Server(
        app,
        address,
        hosts=session.setting("web_hosts"),
        keyed=session.setting("api_key_sha256") is not None,
        secure=session.setting("web_secure") == "on",
        proxy_header=session.setting("web_proxy_header"),
        proxy_from=session.setting("web_proxy_from"),
        proxy_role=session.setting("web_proxy_role"),
    )
