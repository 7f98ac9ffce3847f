"""The rows of the table of actions that change batches, their units, and results in inboxes."""

from __future__ import annotations

from holdfast.admin.actions.table import Action, Confirm, Target
from holdfast.domain.access.roles import Role
from holdfast.domain.batches.batch import BatchState
from holdfast.domain.batches.unit import UnitState

_UNFINISHED = (BatchState.READY, BatchState.RUNNING, BatchState.PAUSED, BatchState.STOPPED)
BATCH_ACTIONS = (
    Action(
        target=Target.BATCH,
        name="resume",
        label="Resume",
        past="resumed",
        help="Resume a paused or stopped batch. Workers continue it at once. Start a run in the foreground again.",
        examples=("holdfast batch resume 7",),
        confirmation="Workers continue it at once. A run in the foreground has to be started again.",
        states=(BatchState.PAUSED, BatchState.STOPPED, BatchState.RUNNING),
        exception="no pause was requested, a cancel was requested, or only its own command can resume it",
    ),
    Action(
        target=Target.BATCH,
        name="pause",
        label="Pause",
        past="paused",
        help="Start no more units of a batch. Running units finish. Continue with holdfast batch resume.",
        examples=("holdfast batch pause 7",),
        confirmation="No more units start. Running units finish first.",
        states=(BatchState.READY, BatchState.RUNNING, BatchState.STOPPED),
        exception="a pause or a cancel was requested before",
        request="asked to pause",
    ),
    Action(
        target=Target.BATCH,
        name="retry-failed",
        label="Retry failed units",
        past="reopened",
        help="Retry all failed units of a batch. Workers start at once; start a run in the foreground again.",
        examples=("holdfast batch retry-failed 7",),
        confirmation="All failed units run again; attempts count from 0.",
        states=(BatchState.PARTIAL, BatchState.FAILED, *_UNFINISHED),
        exception="it has no failed unit, or a cancel was requested",
    ),
    Action(
        target=Target.BATCH,
        name="cancel",
        label="Cancel",
        past="cancelled",
        help="""Cancel every unit of batches that is not finished.

        Select batches by id or by filter. Without --state the filter takes unfinished ones. A cancelled batch cannot be
        resumed: use holdfast batch pause for that.
        """,
        examples=("holdfast batch cancel 7 8", "holdfast batch cancel --function 'resync*' --older-than 7d --dry-run"),
        confirmation="Every unit that is not finished is cancelled. A running unit may finish, and its result counts.",
        states=_UNFINISHED,
        exception="a cancel was requested before",
        request="asked to stop",
        destructive=True,
        confirm=Confirm.ALWAYS,
    ),
    Action(
        target=Target.BATCH,
        name="rm",
        label="Delete",
        past="deleted",
        help="""Delete batches with their ledgers and their history. A batch that is being run stays.

        Select batches by id or by filter. Without --state the filter takes finished ones.
        """,
        examples=("holdfast batch rm 7", "holdfast batch rm --state done --older-than 30d --yes"),
        confirmation="The batch is deleted with its whole ledger.",
        states=tuple(state for state in BatchState if state is not BatchState.RUNNING),
        role=Role.ADMIN,
        destructive=True,
        confirm=Confirm.ALWAYS,
    ),
)

_FAILED_UNITS = (UnitState.FAILED, UnitState.IN_DOUBT)
UNIT_ACTIONS = (
    Action(
        target=Target.UNIT,
        name="retry",
        label="Retry",
        past="retried",
        help="Retry the failed units of a cluster of errors.",
        confirmation="They run again, on workers at once, elsewhere with the next run; attempts count from 0.",
        states=_FAILED_UNITS,
        exception="the batch is cancelled, or its cancel was requested",
        confirm=Confirm.ALWAYS,
    ),
    Action(
        target=Target.UNIT,
        name="skip",
        label="Skip",
        past="skipped",
        help="Skip the failed units of a cluster of errors.",
        confirmation="They count as skipped, and no longer as failed.",
        states=_FAILED_UNITS,
        exception="the batch is cancelled, or its cancel was requested",
        destructive=True,
        confirm=Confirm.ALWAYS,
    ),
)

#: States of results in an inbox: no consumer has it, or one has.
FREE, TAKEN = "free", "taken"
_LOST = "another consumer has it, or it has expired"
RESULT_ACTIONS = (
    Action(
        target=Target.RESULT,
        name="accept",
        label="Accept",
        past="accepted",
        help="Accept results that you took: their units are done. Exit 9: you have lost all of them.",
        examples=("holdfast inbox accept 17.2",),
        confirmation="Its unit is done. No consumer gets the result any more.",
        states=(FREE, TAKEN),
        exception=_LOST,
        confirm=Confirm.ON_PAGE,
    ),
    Action(
        target=Target.RESULT,
        name="refuse",
        label="Refuse",
        past="refused",
        help="""Refuse results that you took: their units fail.

        They run again with the next run of their batches. The reason (--note) becomes the error of the units.
        """,
        examples=("holdfast inbox refuse 17.2 --note 'the file is empty'",),
        confirmation="Its unit fails with your reason, and runs again with the next run of its batch.",
        states=(FREE, TAKEN),
        exception=_LOST,
        destructive=True,
        confirm=Confirm.ON_PAGE,
        options=("note",),
    ),
)
