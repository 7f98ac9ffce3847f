"""The table of actions: everything that people can do to jobs, batches, schedules, queues, workers and the store.

Command line, pages, HTTP API and reference read it: names, texts, states, roles, confirmations and options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module

from holdfast.admin.actions.action import Action, Target
from holdfast.domain.names import nearest_name
from holdfast.errors import InvalidInput

#: The module with the rows of each target, imported on first use: a short command must start fast.
_ROWS = {
    Target.JOB: "job_table:JOB_ACTIONS",
    Target.BATCH: "batch_table:BATCH_ACTIONS",
    Target.UNIT: "batch_table:UNIT_ACTIONS",
    Target.SCHEDULE: "schedule_table:SCHEDULE_ACTIONS",
    Target.QUEUE: "fleet_table:QUEUE_ACTIONS",
    Target.WORKER: "fleet_table:WORKER_ACTIONS",
    Target.STORE: "fleet_table:STORE_ACTIONS",
}


@cache
def actions_on(target: Target) -> Mapping[str, Action]:
    """The actions on one sort of object, by name, in the order of their buttons."""
    module, _, rows = _ROWS[target].partition(":")
    return {action.name: action for action in getattr(import_module(f"holdfast.admin.actions.{module}"), rows)}


def all_actions() -> Iterator[Action]:
    """The whole table."""
    for target in Target:
        yield from actions_on(target).values()


def find_action(target: Target, name: str) -> Action:
    """The action of this name; an unknown name is an InvalidInput with a suggestion."""
    known = actions_on(target)
    if name not in known:
        near = nearest_name(name, known)
        hint = f"Did you mean {near!r}?" if near else f"Actions: {', '.join(known)}."
        raise InvalidInput(f"unknown action {name[:40]!r} for a {target}", hint=hint)
    return known[name]
