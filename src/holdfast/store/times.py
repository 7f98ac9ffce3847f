"""The store's own time."""

from __future__ import annotations

from datetime import datetime

from holdfast.store.flow import Flow, ask
from holdfast.store.rows import moment


def read_now() -> Flow[datetime]:
    """The time by which this transaction decides."""
    return moment((yield ask("read_now"))[0][0])
