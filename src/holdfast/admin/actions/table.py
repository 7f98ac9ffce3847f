"""The table of actions: everything that people can do to jobs, batches, results, schedules, queues, workers, the store.

Command line, pages, HTTP API and reference read it: names, texts, states, roles, confirmations and options.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import Any

from msgspec import Struct, structs

from holdfast.domain.access.roles import Role
from holdfast.domain.names import nearest_name
from holdfast.errors import InvalidInput


class Target(StrEnum):
    """The type of object that an action changes."""

    JOB = "job"
    BATCH = "batch"
    UNIT = "unit"
    RESULT = "result"
    SCHEDULE = "schedule"
    QUEUE = "queue"
    WORKER = "worker"
    STORE = "store"


class Confirm(StrEnum):
    """When an action needs a confirmation, or ``--yes``."""

    NEVER = "never"
    #: On pages, where a click may be a mistake. A command line that names its object is clear.
    ON_PAGE = "on_page"
    #: For more than one object.
    MANY = "many"
    ALWAYS = "always"


class Action(Struct, frozen=True, kw_only=True):
    """One action.

    - *past* follows an object: "3 jobs cancelled", "3 jobs would be cancelled". So does *request*, for objects that a
      running holder has to change: "1 job asked to stop".
    - Objects in other *states* stay unchanged. *exception* says why an object in one of them may stay unchanged, too,
      and *exceptions* why one in a certain state may.
    - *repeatable*: it sets something, so that a repetition, which changes nothing, is a success.
    - *on_page*: pages offer it. They leave out actions that do the same as another one there.
    - *counts* names the objects that it counts, if these are others than its target.
    - *examples* are command lines for the help of its command.
    """

    target: Target
    name: str
    label: str
    past: str
    help: str
    confirmation: str
    request: str = ""
    states: tuple[str, ...]
    exception: str = ""
    exceptions: Mapping[str, str] = {}
    role: Role = Role.OPERATOR
    destructive: bool = False
    confirm: Confirm = Confirm.NEVER
    repeatable: bool = False
    options: tuple[str, ...] = ()
    on_page: bool = True
    counts: str = ""
    examples: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first sentence of the help."""
        return f"{self.help.partition('.')[0]}."

    @property
    def audit_name(self) -> str:
        """The name in the audit log."""
        return self.name if self.target in (Target.JOB, Target.STORE) else f"{self.target} {self.name}"

    def explain(self, state: str) -> str:
        """Why an object in this state was not changed."""
        exception = self.exceptions.get(state, self.exception)
        if state in self.states and exception:
            return f"{state}: {exception}"
        return f"{state}: {self.name} changes only {join_words(self.states)} {plural(self.target)}"


def plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith("ch") else f"{noun}s"


def join_words(words: tuple[str, ...]) -> str:
    """Words as a list in a sentence: ``held, ready and running``."""
    names = [word.replace("_", " ") for word in words]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def options_of(action: Action, options: Struct, *others: str) -> dict[str, Any]:
    """The *options* that were set. One that the action does not take is refused; *others* are not options."""
    defaults = {field.name: field.default for field in structs.fields(options)}
    values = {name: getattr(options, name) for name in defaults if name not in others}
    chosen = {name: value for name, value in values.items() if value != defaults[name]}
    for name in chosen:
        if name not in action.options:
            takes = f"It takes: {', '.join(action.options)}." if action.options else "It takes no options."
            raise InvalidInput(f"{action.name} takes no {name}", hint=takes)
    return chosen


#: The module with the rows of each target, imported on first use: a short command must start fast.
_ROWS = {
    Target.JOB: "job_table:JOB_ACTIONS",
    Target.BATCH: "batch_table:BATCH_ACTIONS",
    Target.UNIT: "batch_table:UNIT_ACTIONS",
    Target.RESULT: "batch_table:RESULT_ACTIONS",
    Target.SCHEDULE: "schedule_table:SCHEDULE_ACTIONS",
    Target.QUEUE: "fleet_table:QUEUE_ACTIONS",
    Target.WORKER: "fleet_table:WORKER_ACTIONS",
    Target.STORE: "fleet_table:STORE_ACTIONS",
}


@cache
def actions_on(target: Target) -> Mapping[str, Action]:
    """The actions on one type of object, by name, in the order of their buttons."""
    module, _, rows = _ROWS[target].partition(":")
    return {action.name: action for action in getattr(import_module(f"holdfast.admin.actions.{module}"), rows)}


def find_action(target: Target, name: str) -> Action:
    """The action of this name; an unknown name is an InvalidInput with a suggestion."""
    known = actions_on(target)
    if name not in known:
        near = nearest_name(name, known)
        hint = f"Did you mean {near!r}?" if near else f"Actions: {', '.join(known)}."
        raise InvalidInput(f"unknown action {name[:40]!r} for a {target}", hint=hint)
    return known[name]
