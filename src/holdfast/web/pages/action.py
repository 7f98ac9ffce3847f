"""Actions of the table on pages: roles, confirmations with the answer of a dry run, and notices."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from starlette.responses import Response

from holdfast.admin.actions.actions import TargetActions
from holdfast.admin.actions.changed import Changed, count_objects
from holdfast.admin.actions.table import Action, Confirm, Target, actions_on, find_action
from holdfast.web.request import Request


class ActionForm:
    """The form of one action on one object: *name* is the action, *subject* the object."""

    def __init__(self, request: Request, actions: TargetActions, name: str, subject: Any) -> None:
        self.action: Action = find_action(actions.target, name)
        request.require(self.action.role)
        self._request = request
        self._actions = actions
        self.subject = subject

    def options(self) -> dict[str, Any]:
        """The reason of the form, if the action takes one."""
        return {"note": self._request.field("note") or None} if "note" in self.action.options else {}

    def perform(self, *, dry_run: bool = False, **options: Any) -> Changed:
        return self._actions.perform(self.action.name, self.subject, dry_run=dry_run, **self.options(), **options)

    @property
    def lacks_confirmation(self) -> bool:
        return self.action.confirm in (Confirm.ALWAYS, Confirm.ON_PAGE) and not self._request.field("sure")

    def confirm(self, screen: str, *, hidden: dict[str, Any], back: str, title: str = "", **values: Any) -> Response:
        """Render the page that asks for confirmation; it has the answer of a dry run."""
        preview, note = self.perform(dry_run=True), self._request.field("note")
        return self._request.confirm(
            screen,
            title=f"{self.action.label.lower()} {title or count_objects(preview.matched, self.action.target)}?",
            text=self.action.confirmation,
            preview=notice(preview),
            hidden={**hidden, **({"note": note} if note else {})},
            note="note" in self.action.options and not note,
            destructive=self.action.destructive,
            back=back,
            **values,
        )


def offered(
    request: Request, target: Target, state: str | None = None, *, without: Collection[str] = ()
) -> list[Action]:
    """The actions that pages offer the caller, in a *state* of the object if it is known."""
    return [
        action
        for action in actions_on(target).values()
        if action.on_page and request.may(action.role) and (state is None or state in action.states)
        if action.name not in without
    ]


def notice(changed: Changed) -> str:
    """The answer of an action as a sentence of a page."""
    return f"{changed.text[0].upper()}{changed.text[1:]}."
