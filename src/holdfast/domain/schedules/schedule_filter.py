"""Filters of schedules: the choices of a list."""

from __future__ import annotations

from msgspec import Struct

from holdfast.domain.schedules.definition import Condition


class ScheduleFilter(Struct, frozen=True):
    """A choice of schedules: by condition, by the kind that they fire, and by a part of their names."""

    condition: Condition | None = None
    kind: str | None = None
    text: str | None = None

    @property
    def where(self) -> tuple[str, ...]:
        """The names of the conditions, as the SQL files have them."""
        condition = () if self.condition is None else (f"schedule_is_{self.condition}",)
        kind = () if self.kind is None else ("schedule_has_kind",)
        return (*condition, *kind, *(() if self.text is None else ("schedule_has_text",)))


#: All schedules.
NO_FILTER = ScheduleFilter()
