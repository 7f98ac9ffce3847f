"""The rows of the table of actions that change jobs."""

from __future__ import annotations

from typing import Any

from holdfast.admin.actions.table import Action, Confirm, Target
from holdfast.domain.access.roles import Role
from holdfast.domain.jobs.job import LIVE, State


def _job(name: str, label: str, past: str, **fields: Any) -> Action:
    return Action(target=Target.JOB, name=name, label=label, past=past, confirm=Confirm.MANY, **fields)


_LIVE = tuple(state for state in State if state in LIVE)
_REVIVED = "another job has its unique key, or a job that it depends on has failed"
_NO_RETRY = "it does not wait for a retry"
JOB_ACTIONS = (
    _job(
        "retry",
        "Retry",
        "retried",
        help="""Run dead and cancelled jobs again with all their attempts. Jobs that wait for a retry run now.

        A job whose dependency has failed is not retried, unless the dependency is retried, too.
        """,
        confirmation="Dead and cancelled jobs run again with all their attempts. Jobs that wait for a retry run now.",
        states=(State.DEAD, State.CANCELLED, State.SCHEDULED),
        exception=_REVIVED,
        exceptions={State.SCHEDULED: _NO_RETRY},
        options=("with_dependents",),
    ),
    _job(
        "restart",
        "Restart",
        "restarted",
        help="""Run commands again that have failed or were cancelled. The same jobs get a new attempt and log.

        Done commands run again if you name them by id, with --state done, or with --done. Give a command that was
        killed for its memory (oom) more: holdfast restart 17 --memory 4G.
        """,
        confirmation="They run again: the same jobs, each with a new attempt.",
        states=(State.DONE, State.DEAD, State.CANCELLED, State.SCHEDULED),
        exception=_REVIVED,
        exceptions={
            State.SCHEDULED: _NO_RETRY,
            State.DONE: "only commands restart when they are done, unless another job has their unique key",
        },
        options=("memory", "done", "with_dependents"),
        on_page=False,
    ),
    _job(
        "resume",
        "Resume",
        "resumed",
        help="""Release paused and held jobs.

        With --all, resume a stopped store and the jobs that an emergency stop holds. Queues and jobs that were paused
        or held one by one stay so.
        """,
        confirmation="Paused and held jobs can start again.",
        states=(State.HELD, State.RUNNING),
        exception="no pause was requested",
    ),
    _job(
        "pause",
        "Pause",
        "paused",
        help="""Hold jobs, including running ones.

        A running job stops at its worker's next heartbeat. It loses no attempt, and keeps its checkpoint for the run
        after holdfast resume.
        """,
        confirmation="They are held. Running jobs stop at their worker's next heartbeat, and lose no attempt.",
        states=(State.WAITING, State.SCHEDULED, State.READY, State.RUNNING),
        exception="a pause or a cancel was requested before",
        options=("note",),
    ),
    _job(
        "hold",
        "Hold",
        "held",
        help="Keep idle jobs from starting until they are released. To hold running jobs too, use holdfast pause.",
        confirmation="Idle jobs do not start until they are released.",
        states=(State.WAITING, State.SCHEDULED, State.READY),
        options=("note",),
        on_page=False,
    ),
    _job(
        "unhold",
        "Release",
        "released",
        help="Release held jobs.",
        confirmation="Held jobs can start again.",
        states=(State.HELD,),
        on_page=False,
    ),
    _job(
        "set",
        "Change",
        "changed",
        help="""Change priority, queue or time of jobs that are not finished, and commands until they run.

        A command that runs or is finished keeps its settings: exit 9. holdfast show lists who changed which setting.

        \b
        Examples:
          holdfast set 17 --env RATE=0.2 --memory 16G
          holdfast set --label 'train*' --priority 5 --to-queue slow --yes
        """,
        confirmation="They get the new values. A running job can only get a new priority.",
        states=_LIVE,
        exception="it has these values already, or only an idle job takes them",
        options=("priority", "to_queue", "run_at"),
    ),
    _job(
        "cancel",
        "Cancel",
        "cancelled",
        help="Cancel jobs. Idle jobs are cancelled at once, running ones at their worker's next heartbeat.",
        confirmation="Idle jobs are cancelled at once, running ones at their worker's next heartbeat.",
        states=_LIVE,
        exception="a cancel was requested before",
        destructive=True,
    ),
    _job(
        "kill",
        "Kill",
        "killed",
        help="Cancel running jobs. A command that does not stop within seconds is killed. Idle jobs are not changed.",
        confirmation="Running jobs are requested to stop. A command that does not stop within seconds is killed.",
        states=(State.RUNNING,),
        exception="a cancel was requested before",
        destructive=True,
        on_page=False,
    ),
    _job(
        "rm",
        "Delete",
        "deleted",
        help="Delete jobs with their whole history. A running job, or one that a live job depends on, is refused"
        " (exit 9).",
        confirmation="They are deleted with their whole history. A running job, or one that a live job depends on, is"
        " refused.",
        states=tuple(state for state in State if state is not State.RUNNING),
        role=Role.ADMIN,
        destructive=True,
    ),
)
