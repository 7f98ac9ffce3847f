"""The rows of the table of actions that change schedules."""

from __future__ import annotations

from holdfast.admin.actions.table import Action, Confirm, Target
from holdfast.domain.access.roles import Role
from holdfast.domain.schedules.definition import Condition

SCHEDULE_ACTIONS = (
    Action(
        target=Target.SCHEDULE,
        name="resume",
        label="Resume",
        past="resumed",
        help="Resume a paused schedule from now on. It skips plans that were due meanwhile: holdfast schedule backfill"
        " fires them.",
        examples=("holdfast schedule resume nightly",),
        confirmation="It fires from now on. Plans that were due meanwhile are skipped.",
        states=(Condition.PAUSED,),
        repeatable=True,
    ),
    Action(
        target=Target.SCHEDULE,
        name="pause",
        label="Pause",
        past="paused",
        help="Fire no more plans of a schedule. Its jobs continue.",
        examples=("holdfast schedule pause nightly --note 'until the migration is done'",),
        confirmation="No more plans are fired. Its jobs continue.",
        states=tuple(Condition),
        exception="it is paused already",
        repeatable=True,
        options=("note",),
    ),
    Action(
        target=Target.SCHEDULE,
        name="trigger",
        label="Trigger now",
        past="triggered",
        help="Fire a schedule now, in addition to its plans. You can trigger a paused schedule, too.",
        examples=("holdfast schedule trigger nightly", "holdfast schedule trigger rollup --scope shop-7"),
        confirmation="It is fired now, in addition to its plans.",
        states=tuple(Condition),
        options=("scopes",),
    ),
    Action(
        target=Target.SCHEDULE,
        name="backfill",
        label="Backfill",
        past="fired",
        help="Fire the missed plans of a past period, one after the other.",
        examples=(
            "holdfast schedule backfill rollup --from 2030-01-01T00:00:00Z --to 2030-01-02T00:00:00Z --dry-run",
            "holdfast schedule backfill rollup --from 6h",
        ),
        confirmation="Fires the plans in the span that were not fired before, one after another.",
        states=tuple(Condition),
        repeatable=True,
        options=("first", "last", "scopes"),
        counts="plan",
    ),
    Action(
        target=Target.SCHEDULE,
        name="rm",
        label="Delete",
        past="deleted",
        help="""Delete a schedule. Its jobs and the record of its plans stay, so a new one of this name repeats no plan.

        The next worker creates a schedule again if code declares it.
        """,
        examples=("holdfast schedule rm nightly --yes",),
        confirmation="Its jobs and the record of its plans stay. A schedule that code declares is created again by the"
        " next worker.",
        states=tuple(Condition),
        role=Role.ADMIN,
        destructive=True,
        confirm=Confirm.ALWAYS,
    ),
)
