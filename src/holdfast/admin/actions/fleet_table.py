"""The rows of the table of actions that change queues, workers and the whole store."""

from __future__ import annotations

from holdfast.admin.actions.table import Action, Confirm, Target
from holdfast.domain.jobs.job import WorkerRequest

#: States of queues, workers and the store.
OPEN, PAUSED, RUNNING, DRAINED, STOPPED = "open", "paused", "running", "drained", "stopped"
QUEUE_ACTIONS = (
    Action(
        target=Target.QUEUE,
        name="set",
        label="Change",
        past="changed",
        help="""Limit how many jobs of a queue run at a time.

        With --autoscaler each worker runs between MIN and MAX commands of the queue. It adds one at a time while its
        host has room, and starts a command only if the memory that it will use fits. See holdfast autoscaler status.
        """,
        confirmation="The limits apply from the next claim on, on every host.",
        states=(OPEN, PAUSED),
        exception="it has these limits already",
        repeatable=True,
        options=("limit", "worker_limit", "autoscaler"),
    ),
    Action(
        target=Target.QUEUE,
        name="pause",
        label="Pause",
        past="paused",
        help="Start no more jobs of a queue. Running jobs continue. An unknown queue is refused without --create.",
        confirmation="No more jobs of the queue start. Running jobs continue.",
        states=(OPEN, PAUSED),
        exception="it is paused already",
        repeatable=True,
        options=("note", "create"),
    ),
    Action(
        target=Target.QUEUE,
        name="resume",
        label="Resume",
        past="resumed",
        help="Start jobs of a paused queue again.",
        confirmation="Jobs of the queue start again.",
        states=(PAUSED,),
        repeatable=True,
    ),
    Action(
        target=Target.QUEUE,
        name="rm",
        label="Delete settings",
        past="deleted",
        help="Delete the settings of a queue that has no jobs: its limits, its pause, its autoscaler.",
        confirmation="Its limits, its pause and its autoscaler are gone.",
        states=(OPEN, PAUSED),
        exception="it has jobs, or no settings",
        on_page=False,
    ),
)

WORKER_ACTIONS = (
    Action(
        target=Target.WORKER,
        name="quiet",
        label="Quiet",
        past="requested to claim no more jobs",
        help="Request that a worker claims no more jobs. Its running jobs continue.",
        confirmation="It claims no more jobs. Its running jobs continue.",
        states=(RUNNING, WorkerRequest.STOP),
        repeatable=True,
    ),
    Action(
        target=Target.WORKER,
        name="stop",
        label="Stop",
        past="requested to stop",
        help="Request that a worker stops, as after a first signal: it waits for its running jobs.",
        confirmation="It claims no more jobs, waits for its running jobs, and stops.",
        states=(RUNNING, WorkerRequest.QUIET),
        destructive=True,
        confirm=Confirm.ALWAYS,
        repeatable=True,
    ),
    Action(
        target=Target.WORKER,
        name="go-on",
        label="Resume",
        past="requested to claim jobs again",
        help="Withdraw the request, so that the worker claims jobs again.",
        confirmation="It claims jobs again.",
        states=(WorkerRequest.QUIET, WorkerRequest.STOP),
        repeatable=True,
    ),
)

STORE_ACTIONS = (
    Action(
        target=Target.STORE,
        name="drain",
        label="Drain",
        past="drained",
        help="""Start no more jobs in the whole store, and wait until none is running.

        The stop covers all queues, including new ones; retried, delayed and new jobs wait. Planners fire no plan,
        batches start no unit, and holdfast run is refused (exit 11). Let the store continue with holdfast resume --all.
        """,
        confirmation="No job of any queue starts until you resume. Running jobs continue.",
        states=(OPEN, DRAINED, STOPPED),
        exception="it is stopped already",
        repeatable=True,
        options=("note",),
    ),
    Action(
        target=Target.STORE,
        name="emergency-stop",
        label="Emergency stop",
        past="stopped",
        help="""Start no more jobs in the whole store, and stop running ones. These are released and held.

        Nothing is lost: holdfast resume --all lets the store and the stopped jobs continue.
        """,
        confirmation="No job of any queue starts. Running jobs are requested to stop, and are held until you resume.",
        states=(OPEN, DRAINED, STOPPED),
        exception="it is stopped already",
        destructive=True,
        confirm=Confirm.ALWAYS,
        repeatable=True,
        options=("note",),
    ),
    Action(
        target=Target.STORE,
        name="resume",
        label="Resume all",
        past="resumed",
        help="Let a stopped store continue, with the jobs that an emergency stop holds.",
        confirmation="Jobs start again, with those that an emergency stop holds.",
        states=(DRAINED, STOPPED),
        repeatable=True,
    ),
)
