"""The table of actions: every row is complete, and command line, API, pages and reference cover exactly the table."""

from __future__ import annotations

import re

import click
import pytest
from msgspec import structs

from holdfast.admin.actions.jobs import _CHANGES
from holdfast.admin.actions.options import JobActionOptions, NoteOptions, QueueActionOptions, ScheduleActionOptions
from holdfast.admin.actions.table import Confirm, Target, actions_on, find_action, options_of, plural
from holdfast.cli.action import action_help
from holdfast.cli.main import COMMANDS
from holdfast.domain.access.roles import Role
from holdfast.domain.batches.batch import BatchState
from holdfast.domain.batches.unit import UnitState
from holdfast.domain.jobs.job import State, WorkerRequest
from holdfast.domain.schedules.definition import Condition
from holdfast.errors import InvalidInput
from holdfast.web.api import batches, fleet, inboxes, jobs, schedules
from holdfast.web.request import WEB_FOLDER
from tests.support.reference import generate

STATES = {
    Target.JOB: State,
    Target.BATCH: BatchState,
    Target.UNIT: UnitState,
    Target.RESULT: ("free", "taken"),
    Target.SCHEDULE: Condition,
    Target.QUEUE: ("open", "paused"),
    Target.WORKER: ("running", *WorkerRequest),
    Target.STORE: ("open", "drained", "stopped"),
}
OPTIONS = {
    Target.JOB: JobActionOptions,
    Target.RESULT: NoteOptions,
    Target.SCHEDULE: ScheduleActionOptions,
    Target.QUEUE: QueueActionOptions,
    Target.STORE: NoteOptions,
}
BODIES = {
    Target.JOB: jobs.JobActionBody,
    Target.BATCH: batches.BatchActionBody,
    Target.UNIT: batches.UnitActionBody,
    Target.RESULT: inboxes.ResultActionBody,
    Target.SCHEDULE: schedules.ScheduleActionBody,
    Target.QUEUE: fleet.QueueActionBody,
    Target.WORKER: fleet.WorkerActionBody,
    Target.STORE: fleet.StopSwitchBody,
}
#: The command of each action. Clusters of failed units are chosen by their errors, on pages and over HTTP.
GROUPS = {Target.BATCH: "batch", Target.RESULT: "inbox", Target.SCHEDULE: "schedule", Target.QUEUE: "queue"}
#: Commands of these groups that change nothing, or that make something new.
OTHERS = {"run", "ls", "show", "units", "attach", "export", "add", "edit", "preview", "history", "why", "take"}
#: Words and habits that the reader has to translate (STYLE 3.1).
REFUSED = re.compile(
    r"\b(nobody|somebody|whoever|so (many|long|often)|is told|are told|goes? on|what (runs|has|is)|ended)\b"
)

#: The whole table.
ACTIONS = [action for target in Target for action in actions_on(target).values()]
every_action = pytest.mark.parametrize("action", ACTIONS, ids=lambda action: f"{action.target}-{action.name}")


@every_action
def test_a_row_is_complete(action):
    """It has texts, states of its target, a role and options that its target declares; destructive ones ask."""
    for text in (action.label, action.past, action.help, action.confirmation):
        assert text
        assert not REFUSED.search(text), text
    assert not REFUSED.search(" ".join([action.exception, *action.exceptions.values()]))
    assert set(action.exceptions) <= set(action.states)
    assert action.states
    assert set(action.states) <= set(STATES[action.target])
    assert action.role in (Role.OPERATOR, Role.ADMIN)
    assert not action.destructive or action.confirm is not Confirm.NEVER
    declared = structs.fields(OPTIONS[action.target]) if action.target in OPTIONS else ()
    assert set(action.options) <= {field.name for field in declared}
    assert all(len(sentence.split()) < 25 for sentence in re.split(r"[.:]\s", action.confirmation))


@pytest.mark.parametrize("target", list(OPTIONS))
def test_an_option_belongs_to_an_action(target):
    """No option is declared that no action takes."""
    taken = {name for action in actions_on(target).values() for name in action.options}
    assert taken == {field.name for field in structs.fields(OPTIONS[target])}


def test_every_action_on_jobs_has_a_change():
    assert set(_CHANGES) == set(actions_on(Target.JOB))


def test_the_command_line_covers_the_table():
    """Each action is a command with the help of the table, and a dry run; --yes where it needs a confirmation."""
    leaves = dict(generate.commands())
    for action in ACTIONS:
        match action.target:
            case Target.UNIT:
                continue
            case Target.WORKER:
                command = leaves["ask",]
                assert action.help in command.help
            case Target.STORE if action.name == "resume":
                command = leaves["resume",]
            case _:
                command = leaves[(*((GROUPS[action.target],) if action.target in GROUPS else ()), action.name)]
                assert command.help == action_help(action)
        flags = {name for option in command.params if isinstance(option, click.Option) for name in option.opts}
        assert "--dry-run" in flags
        assert "--yes" in flags or action.confirm in (Confirm.NEVER, Confirm.ON_PAGE)
    for target, group in GROUPS.items():
        assert {path[1] for path in leaves if path[0] == group} - OTHERS == set(actions_on(target))
    summaries = {name: text for commands in COMMANDS.values() for name, (_, text) in commands.items()}
    for action in (*actions_on(Target.JOB).values(), find_action(Target.STORE, "drain")):
        assert summaries[action.name] == action.summary


@pytest.mark.parametrize("target", list(Target))
def test_the_api_covers_the_table(target):
    """The body of each target takes the name of an action, a dry run, and the options of the table."""
    fields = {field.name for field in structs.fields(BODIES[target])}
    assert {"action", "dry_run"} <= fields
    taken = {name for action in actions_on(target).values() for name in action.options}
    assert taken == fields & {field.name for struct in OPTIONS.values() for field in structs.fields(struct)}


def test_an_option_of_another_action_is_refused():
    body = jobs.JobActionBody(action="cancel", filter="id=1", priority=7)
    with pytest.raises(InvalidInput, match="cancel takes no priority"):
        options_of(find_action(Target.JOB, "cancel"), body, "action", "filter", "dry_run")


def test_pages_have_no_texts_of_their_own():
    """Labels come from the table: no template names an action that the table does not have."""
    known = {action.name for action in ACTIONS} | {"resume"}
    for template in (WEB_FOLDER / "templates").glob("*.html"):
        text = template.read_text(encoding="utf-8")
        assert set(re.findall(r'name="action" value="([a-z-]+)"', text)) <= known, template
        assert set(re.findall(r"action_form\(\S+, 'action', '([a-z-]+)'", text)) <= known, template


def test_the_reference_covers_the_table():
    page = generate.action_page()
    for target in Target:
        section = page.partition(f"## {plural(target).capitalize()}\n")[2].partition("\n## ")[0]
        assert re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE) == list(actions_on(target))
