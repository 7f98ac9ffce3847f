"""The stop switch: one setting that keeps the whole store from starting work."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from holdfast.domain.access.masking import mask_text

#: The notes of jobs that an emergency stop holds begin with this text.
STOP_NOTE = "emergency stop by "


class StopMode(StrEnum):
    """DRAIN: running work finishes. STOP: running work is requested to stop as well."""

    DRAIN = "drain"
    STOP = "stop"


class StopSwitch(Struct, frozen=True):
    """The switch in force: who stopped the store, why and when."""

    mode: StopMode
    actor: str
    note: str | None
    at: datetime

    @property
    def reason(self) -> str:
        """Who stopped the store, and why."""
        begin = STOP_NOTE if self.mode is StopMode.STOP else "drained by "
        return f"{begin}{self.actor}" + (f": {mask_text(self.note)}" if self.note else "")

    @property
    def text(self) -> str:
        """A sentence for people."""
        return f"the store is stopped ({self.reason}) since {self.at:%Y-%m-%d %H:%M:%S} UTC"
