"""From a selector to conditions: the one way in which lists and verbs find their jobs."""

from __future__ import annotations

from typing import Any

from holdfast.domain.job import JobId
from holdfast.domain.selector import Glob, Selector
from holdfast.store.flow import Ask, Flow


def conditions(selector: Selector) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of the conditions that *selector* asks for, and their parameters."""
    where: list[str] = []
    values: dict[str, Any] = {}

    def add(name: str, parameter: str, value: Any) -> None:
        where.append(name)
        values[parameter] = value

    if selector.ids:
        add("by_ids", "ids", list(selector.ids))
    if selector.keys:
        add("by_keys", "keys", list(selector.keys))
    if selector.labels:
        globs = [Glob(label) for label in selector.labels]
        exact = all(glob.exact for glob in globs)
        add("by_labels" if exact else "like_labels", "labels", [str(g) for g in globs] if exact else globs)
    if selector.queues:
        add("like_queues", "queues", [Glob(queue) for queue in selector.queues])
    if selector.kinds:
        add("like_kinds", "kinds", [Glob(kind) for kind in selector.kinds])
    if len(selector.states) == 1:
        where.append(f"only_{selector.states[0]}")
    elif selector.states:
        add("by_states", "states", list(selector.states))
    for name in ("error", "since", "until"):
        if (value := getattr(selector, name)) is not None:
            add("by_error" if name == "error" else name, name, value)
    return tuple(where), values


def select_ids(selector: Selector, *, after: JobId, limit: int) -> Flow[list[JobId]]:
    """One page of ids, ascending, that come after *after*."""
    where, values = conditions(selector)
    rows = yield Ask("select_ids", {**values, "after": after, "limit": limit}, None, (*where, "after"))
    return [row[0] for row in rows]
