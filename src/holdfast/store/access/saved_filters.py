"""Filters of jobs that people saved by name."""

from __future__ import annotations

from holdfast.domain.jobs.selector import SavedFilter, parse_filter
from holdfast.domain.names import checked_actor, checked_name
from holdfast.errors import InvalidInput, NotFound
from holdfast.store.engine.operation import Noun, query

MAX_FILTER_LENGTH = 2000
#: Saved filters that a list shows.
LIST_LIMIT = 200


class SavedFilters(Noun):
    """Filters by name."""

    def save(self, name: str, text: str, *, actor: str) -> None:
        """Save a filter under a name; it replaces a filter of this name.

        Raises:
            InvalidInput: The filter is not valid.
        """
        checked_name(name, label="the name")
        if len(text) > MAX_FILTER_LENGTH:
            raise InvalidInput(f"a filter has at most {MAX_FILTER_LENGTH:,} characters")
        parse_filter(text)
        self._backend.run(query("save_filter", name=name, filter=text, actor=checked_actor(actor)), repeatable=True)

    def delete(self, name: str) -> None:
        """Delete a filter.

        Raises:
            NotFound: No filter has this name.
        """
        if not self._backend.run(query("delete_filter", name=name)):
            raise NotFound(f"there is no filter {name[:100]!r}")

    def list(self) -> list[SavedFilter]:
        """The first 200 filters by name."""
        return self._fetch("list_filters", SavedFilter, limit=LIST_LIMIT)
