"""From a selector to conditions: the one way in which lists and verbs find their jobs."""

from __future__ import annotations

from typing import Any

from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.selector import Glob, Selector
from holdfast.store.engine.operation import Operation, Query


def conditions(selector: Selector) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of the conditions that *selector* asks for, and their parameters."""
    requested = {
        "by_ids": ("ids", _list(selector.ids)),
        "by_keys": ("keys", _list(selector.keys)),
        _label_condition(selector): ("labels", _globs(selector.labels)),
        "by_tags": ("tags", _list(selector.tags)),
        "like_queues": ("queues", _globs(selector.queues)),
        "like_kinds": ("kinds", _globs(selector.kinds)),
        _state_condition(selector): ("states", _list(selector.states)),
        "by_error": ("error", selector.error),
        "since": ("since", selector.since),
        "until": ("until", selector.until),
    }
    asked = {name: pair for name, pair in requested.items() if pair[1] is not None}
    return tuple(asked), dict(asked.values())


def _label_condition(selector: Selector) -> str:
    """Whole labels can be looked up in the index, patterns cannot."""
    return "by_labels" if all(Glob(label).exact for label in selector.labels or ()) else "like_labels"


def _state_condition(selector: Selector) -> str:
    states = selector.states or ()
    return f"only_{states[0]}" if len(states) == 1 else "by_states"


def _list(values: tuple[Any, ...] | None) -> list[Any] | None:
    return None if values is None else list(values)


def _globs(values: tuple[str, ...] | None) -> list[Glob] | None:
    return None if values is None else [Glob(value) for value in values]


def select_ids(selector: Selector, *, after: JobId, limit: int) -> Operation[list[JobId]]:
    """One page of ids, ascending, that come after *after*."""
    where, values = conditions(selector)
    rows = yield Query("list_job_ids", {**values, "after": after, "limit": limit}, None, (*where, "after"))
    return [row[0] for row in rows]
