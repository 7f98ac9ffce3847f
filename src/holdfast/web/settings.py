"""What a site may be told: to whom it answers, and whom it lets in."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct

from holdfast.domain.access.roles import Role, checked_role
from holdfast.errors import ConfigurationError

#: Names of this machine: they are always answered.
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class WebOptions(Struct, frozen=True, kw_only=True):
    """How a site is set up.

    *hosts*: the names it answers to, beside those of this machine. *anyone*: the role of somebody without a token, as
    long as no token was ever made; None: there is no such thing. *secure*: cookies travel over HTTPS alone.
    *proxy_header* names the person, if the request comes from one of *proxy_from*; such people have *proxy_role*.
    *patience*: no look at the store may take longer.
    """

    hosts: tuple[str, ...] = ()
    anyone: Role | None = None
    secure: bool = False
    proxy_header: str | None = None
    proxy_from: tuple[str, ...] = ()
    proxy_role: Role = Role.VIEWER
    patience: timedelta = timedelta(seconds=5)
    session: timedelta = timedelta(hours=12)
    #: What the body of a request may take, in bytes.
    largest_body: int = 1024 * 1024

    def __post_init__(self) -> None:
        if (self.proxy_header is None) != (not self.proxy_from):
            raise ConfigurationError(
                "a proxy's header is trusted from named addresses only",
                hint="Set web_proxy_header and web_proxy_from, both or neither.",
            )
        for address in self.proxy_from:
            _network(address)

    @property
    def trusted(self) -> tuple[Any, ...]:
        """The addresses of proxies, as networks."""
        return tuple(_network(address) for address in self.proxy_from)


def make_options(
    *, hosts: Sequence[str] = (), proxy_from: Sequence[str] = (), proxy_role: str = "viewer", **others: Any
) -> WebOptions:
    """Options as people write them.

    Raises:
        ConfigurationError: One of them makes no sense.
    """
    for name, value in (("hosts", hosts), ("proxy_from", proxy_from)):
        if isinstance(value, str):
            raise ConfigurationError(f"{name} is a list of texts", hint=f"Write {name}=[{value!r}].")
    try:
        return WebOptions(
            hosts=tuple(host.lower() for host in hosts),
            proxy_from=tuple(proxy_from),
            proxy_role=checked_role(proxy_role),
            **others,
        )
    except TypeError as error:
        raise ConfigurationError(f"the site cannot be told this: {error}") from None


def _network(text: str) -> Any:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no address", hint="Write addresses such as 10.0.0.5, or networks such as 10.0.0.0/8."
        ) from None
