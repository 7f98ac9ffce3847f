"""Audit entries: what people did, and through which interface."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class Via(StrEnum):
    """The interface through which a person acted."""

    CLI = "cli"
    WEB = "web"
    API = "api"


class AuditEntry(Struct, frozen=True):
    """An action of a person on *target*, which changed *count* things.

    *os_user*: login and uid of the person at the command line. *db_user*: the user of the PostgreSQL session.
    """

    id: int
    at: datetime
    actor: str
    via: Via
    action: str
    target: str
    count: int | None
    note: str | None
    os_user: str | None
    db_user: str | None
