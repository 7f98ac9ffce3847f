"""One action that people can do: its texts, states, role, confirmation and options."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, structs

from holdfast.domain.access.roles import Role
from holdfast.errors import InvalidInput


class Target(StrEnum):
    """The sort of object that an action changes."""

    JOB = "job"
    BATCH = "batch"
    UNIT = "unit"
    SCHEDULE = "schedule"
    QUEUE = "queue"
    WORKER = "worker"
    STORE = "store"


class Confirm(StrEnum):
    """When an action needs a confirmation, or ``--yes``."""

    NEVER = "never"
    #: For more than one object.
    MANY = "many"
    ALWAYS = "always"


class Action(Struct, frozen=True, kw_only=True):
    """One action.

    - *past* follows an object: "3 jobs cancelled", "3 jobs would be cancelled".
    - Objects in other *states* stay unchanged. *exception* says why an object in one of them may stay unchanged, too,
      and *exceptions* why one in a certain state may.
    - *repeatable*: it sets something, so that a repetition, which changes nothing, is a success.
    - *on_page*: pages offer it. They leave out actions that do the same as another one there.
    - *counts* names the objects that it counts, if these are others than its target.
    """

    target: Target
    name: str
    label: str
    past: str
    help: str
    confirmation: str
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
    """The *options* that were set. One that the action does not take is refused; *others* are no options."""
    defaults = {field.name: field.default for field in structs.fields(options)}
    values = {name: getattr(options, name) for name in defaults if name not in others}
    chosen = {name: value for name, value in values.items() if value != defaults[name]}
    for name in chosen:
        if name not in action.options:
            takes = f"It takes: {', '.join(action.options)}." if action.options else "It takes no options."
            raise InvalidInput(f"{action.name} takes no {name}", hint=takes)
    return chosen
