"""``holdfast web``: the dashboard and the HTTP API."""

from __future__ import annotations

from typing import Any

import click
from msgspec import Struct

from holdfast.cli.app_loader import load_app
from holdfast.cli.command import command as shared_command
from holdfast.cli.command import with_options
from holdfast.cli.ops.worker import APP, LOG, say
from holdfast.cli.session import Session
from holdfast.output import log_format
from holdfast.store.engine.url import open_store


class Served(Struct, frozen=True):
    """Where it was served until it ended."""

    address: str


LISTEN = click.option("--listen", "web", metavar="HOST:PORT", help="Where to listen. [127.0.0.1:8320]")


@shared_command("web", answers=Served)
@with_options(APP, LISTEN, *LOG)
def command(session: Session, **flags: Any) -> None:
    """Serve the dashboard and the HTTP API until told to stop.

    It listens on this machine alone, where anybody may look and act until the first token is made (holdfast token add).
    Another address is refused while nobody would be asked for a token, and so is a named store that is not there.

    \b
    Examples:
      holdfast web
      holdfast web --listen 0.0.0.0:8320
    """
    asked = {name: session.setting(name, flag) for name, flag in flags.items()}
    session.output.keep_stdout()
    log_format.configure(style=asked["log_format"], level=asked["log_level"])
    if asked["app"] is None and session.named_url is not None:
        # Whoever names a store wants to see what is in it: a new one would show nothing.
        open_store(session.named_url, create=False).close()
    app = load_app(asked["app"], url=session.asked_url)
    server = server_of(session, app, asked["web"])
    say(f"the dashboard of {server.site.place} is at {server.url}")
    server.run()
    session.output.value(Served(server.url), lambda: ())


def server_of(session: Session, app: Any, address: str) -> Any:
    """The server that was asked for, with its settings; it listens already.

    Raises:
        ConfigurationError: The extra is missing, or the address would be open to everyone.
    """
    from holdfast.errors import ConfigurationError

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
