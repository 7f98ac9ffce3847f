"""The store's own time."""

from __future__ import annotations

from datetime import datetime

from holdfast.store.engine.operation import Operation, query
from holdfast.store.engine.rows import timestamp


def read_now() -> Operation[datetime]:
    """The time by which this transaction decides."""
    return timestamp((yield query("read_now"))[0][0])
