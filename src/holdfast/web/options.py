"""Options of a site: its host names, and its rules of access."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct

from holdfast.domain.access.roles import Role, checked_role
from holdfast.errors import ConfigurationError

#: Host names of this machine: a site always answers to them.
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class WebOptions(Struct, frozen=True, kw_only=True):
    """The options of a site.

    *hosts* are the names that it answers to, in addition to those of this machine. *secure* restricts cookies to HTTPS.
    *proxy_header* names the person in requests from *proxy_from*, and *proxy_groups_header* lists their groups, with
    commas between. Their role is the highest that *proxy_roles* has for a group, else *proxy_role*; None refuses them.
    *patience* is the timeout of reads. *session* is the lifetime of a session.
    """

    hosts: tuple[str, ...] = ()
    secure: bool = False
    proxy_header: str | None = None
    proxy_from: tuple[str, ...] = ()
    proxy_role: Role | None = Role.VIEWER
    proxy_groups_header: str | None = None
    proxy_roles: dict[str, Role] = {}
    patience: timedelta = timedelta(seconds=5)
    session: timedelta = timedelta(hours=12)
    #: Bytes that the body of a request may have.
    largest_body: int = 1024 * 1024

    def __post_init__(self) -> None:
        if (self.proxy_header is None) != (not self.proxy_from):
            hint = "Set web_proxy_header and web_proxy_from, both or neither."
            raise ConfigurationError("a proxy's header is trusted from named addresses only", hint=hint)
        if (self.proxy_groups_header is None) != (not self.proxy_roles) or (self.proxy_roles and not self.proxy_header):
            hint = "Set web_proxy_header, web_proxy_groups_header and web_proxy_roles together."
            raise ConfigurationError("a proxy's groups need a header and a table of roles", hint=hint)
        for address in self.proxy_from:
            _network(address)

    @property
    def trusted(self) -> tuple[Any, ...]:
        """The addresses of trusted proxies, as networks."""
        return tuple(_network(address) for address in self.proxy_from)


def make_options(
    *,
    hosts: Sequence[str] = (),
    proxy_from: Sequence[str] = (),
    proxy_role: str = "viewer",
    proxy_roles: Mapping[str, str] | None = None,
    **others: Any,
) -> WebOptions:
    """Build options from the values that people write; invalid ones are a ConfigurationError."""
    for name, value in (("hosts", hosts), ("proxy_from", proxy_from)):
        if isinstance(value, str):
            raise ConfigurationError(f"{name} is a list of texts", hint=f"Write {name}=[{value!r}].")
    try:
        names, role = tuple(host.lower() for host in hosts), None if proxy_role == "none" else checked_role(proxy_role)
        roles = {group: checked_role(text) for group, text in (proxy_roles or {}).items()}
        return WebOptions(hosts=names, proxy_from=tuple(proxy_from), proxy_role=role, proxy_roles=roles, **others)
    except TypeError as error:
        raise ConfigurationError(f"a setting of the dashboard is invalid: {error}") from None


def _network(text: str) -> Any:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        hint = "Write addresses such as 10.0.0.5, or networks such as 10.0.0.0/8."
        raise ConfigurationError(f"{text!r} is not a valid address", hint=hint) from None
