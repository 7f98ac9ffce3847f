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
        help="""Limit how many jobs of a queue run at the same time.

        With --autoscaler each worker runs between MIN and MAX commands of the queue. It adds one at a time while its
        host has room, and starts a command only if the memory that it will use fits. See holdfast autoscaler status.
        """,
        examples=("holdfast queue set mail --limit 4 --worker-limit 2", "holdfast queue set train --autoscaler 1-8"),
        confirmation="The limits apply at once, on every host; running jobs continue.",
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
        help="""Start no more jobs of a queue. Running jobs continue.

        An unknown queue is refused without --create. To stop all queues at once, use holdfast drain.
        """,
        examples=("holdfast queue pause mail --note 'the mail server is down'",),
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
        examples=("holdfast queue resume mail",),
        confirmation="Jobs of the queue start again.",
        states=(PAUSED,),
        repeatable=True,
    ),
    Action(
        target=Target.QUEUE,
        name="rm",
        label="Delete settings",
        past="deleted",
        help="Delete the settings of a queue without jobs. These are its limits, its pause and its autoscaler.",
        examples=("holdfast queue rm mail",),
        confirmation="Its limits, its pause and its autoscaler are gone.",
        states=(OPEN, PAUSED),
        exception="it has jobs, or no settings",
        destructive=True,
        confirm=Confirm.ON_PAGE,
    ),
)

WORKER_ACTIONS = (
    Action(
        target=Target.WORKER,
        name="quiet",
        label="Quiet",
        past="requested to claim no more jobs",
        help="Claim no more jobs. Running jobs continue.",
        confirmation="It claims no more jobs. Its running jobs continue.",
        states=(RUNNING, WorkerRequest.STOP),
        repeatable=True,
    ),
    Action(
        target=Target.WORKER,
        name="stop",
        label="Stop",
        past="requested to stop",
        help="Claim no more jobs, wait for running jobs within the grace period, and exit.",
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
        help="Withdraw a request: claim jobs again.",
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
        help="""Start no jobs in the whole store; wait for running ones.

        The stop covers all queues, including new ones; retried, delayed and new jobs wait. Schedules do not fire,
        batches start no unit, and holdfast run is refused (exit 11). Workers keep running. holdfast resume --all ends
        the drain. To stop one worker, use holdfast ask; to stop the processes of this machine, holdfast down.
        """,
        examples=("holdfast drain --timeout 30m --note 'deploy 2.4.1'", "holdfast drain --end"),
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
        help="""Start no jobs in the whole store; stop running ones.

        The stopped jobs are released and held, and lose no attempt. holdfast resume --all lets the store and these jobs
        continue. To wait for running jobs instead, use holdfast drain.
        """,
        examples=("holdfast emergency-stop --note 'wrong prices' --yes", "holdfast emergency-stop --dry-run"),
        confirmation="No job of any queue starts. Running jobs are requested to stop, and are held until you resume.",
        states=(OPEN, DRAINED, STOPPED),
        exception="it is stopped already",
        destructive=True,
        request="asked to stop",
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
