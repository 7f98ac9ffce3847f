"""The store's own time."""

from __future__ import annotations

from datetime import datetime

from holdfast.store.engine.operation import Flow, ask
from holdfast.store.engine.rows import moment


def read_now() -> Flow[datetime]:
    """The time by which this transaction decides."""
    return moment((yield ask("read_now"))[0][0])
