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
        help="""Run dead and cancelled jobs again; attempts count from 0.

        Jobs that wait for their next attempt run now. If a dependency failed, retry it too: the job alone is refused.
        To give a command one more attempt only, use holdfast restart.
        """,
        examples=("holdfast retry 17", "holdfast retry --state dead --kind 'mail-*' --since 1d --dry-run"),
        confirmation="Dead and cancelled jobs run again; attempts count from 0. Jobs that wait for a retry run now.",
        states=(State.DEAD, State.CANCELLED, State.SCHEDULED),
        exception=_REVIVED,
        exceptions={State.SCHEDULED: _NO_RETRY},
        options=("with_dependents",),
    ),
    _job(
        "restart",
        "Restart",
        "restarted",
        help="""Run failed commands again: one more attempt and log.

        It takes commands that failed or were cancelled; done ones only by id, with --state done, or with --done. A
        failure that a later job with its key has replaced is restarted only by id. Use --memory for a command that ran
        out of memory (oom). holdfast retry takes all kinds of jobs, and counts attempts from 0.
        """,
        examples=("holdfast restart 17 --memory 4G", "holdfast restart --label nightly --yes"),
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
        help="""Release paused and held jobs, or a stopped store.

        --all resumes the store after drain or emergency-stop; it does not select all jobs. Queues and jobs that were
        paused or held separately do not change. For a queue, use holdfast queue resume.
        """,
        examples=("holdfast resume 17 18", "holdfast resume --label nightly", "holdfast resume --all"),
        confirmation="Paused and held jobs can start again.",
        states=(State.HELD, State.RUNNING),
        exception="no pause was requested",
    ),
    _job(
        "pause",
        "Pause",
        "paused",
        help="""Stop running jobs and hold idle ones; they lose no attempt.

        A running job stops within seconds and keeps its checkpoint. A command (holdfast add) has none: it is killed,
        and starts over. Let the jobs continue with holdfast resume. To leave running jobs alone, use holdfast hold;
        for a whole queue, holdfast queue pause.
        """,
        examples=("holdfast pause 17", "holdfast pause --label 'train*' --note 'GPU is needed elsewhere'"),
        confirmation="They are held and lose no attempt. Running jobs stop within seconds; commands start over.",
        states=(State.WAITING, State.SCHEDULED, State.READY, State.RUNNING),
        exception="a pause or a cancel was requested before",
        request="asked to pause",
        options=("note",),
    ),
    _job(
        "hold",
        "Hold",
        "held",
        help="""Keep idle jobs from starting; running jobs continue.

        Release them with holdfast unhold. To stop running jobs too, use holdfast pause.
        """,
        examples=("holdfast hold 17", "holdfast hold --queue reports --note 'wait for new data'"),
        confirmation="Idle jobs do not start until they are released.",
        states=(State.WAITING, State.SCHEDULED, State.READY),
        options=("note",),
        on_page=False,
    ),
    _job(
        "unhold",
        "Release",
        "released",
        help="Release held jobs. holdfast resume does the same, and also withdraws a pause of running jobs.",
        examples=("holdfast unhold 17", "holdfast unhold --queue reports --yes"),
        confirmation="Held jobs can start again.",
        states=(State.HELD,),
        on_page=False,
    ),
    _job(
        "set",
        "Change",
        "changed",
        help="""Change jobs: priority, queue, time, command settings.

        Finished jobs do not change (exit 9), and a command keeps its settings once it has started. holdfast show lists
        who changed which setting.
        """,
        examples=(
            "holdfast set 17 --env RATE=0.2 --memory 16G",
            "holdfast set --label 'train*' --priority 5 --to-queue slow --yes",
        ),
        confirmation="They get the new values. A running job can only get a new priority.",
        states=_LIVE,
        exception="it has these values already, or only an idle job takes them",
        options=("priority", "to_queue", "run_at"),
    ),
    _job(
        "cancel",
        "Cancel",
        "cancelled",
        help="""Cancel jobs, idle and running.

        A running job stops within seconds. To cancel running jobs only, use holdfast kill; to stop
        jobs and continue them later, holdfast pause; to delete them, holdfast rm.
        """,
        examples=("holdfast cancel 17 18", "holdfast cancel --label nightly --state ready,scheduled --yes"),
        confirmation="Idle jobs are cancelled at once, running ones within seconds.",
        states=_LIVE,
        exception="a cancel was requested before",
        request="asked to stop",
        destructive=True,
    ),
    _job(
        "kill",
        "Kill",
        "killed",
        help="""Cancel running jobs only; idle jobs stay.

        A command that does not stop within seconds is killed. To cancel idle jobs too, use holdfast cancel.
        """,
        examples=("holdfast kill 17", "holdfast kill --label 'train*' --dry-run"),
        confirmation="Running jobs are requested to stop. A command that does not stop within seconds is killed.",
        states=(State.RUNNING,),
        exception="a cancel was requested before",
        request="asked to stop",
        destructive=True,
        on_page=False,
    ),
    _job(
        "rm",
        "Delete",
        "deleted",
        help="""Delete jobs and their history.

        A running job, or one that a live job depends on, is refused (exit 9). Workers prune old jobs: see the setting
        retention.
        """,
        examples=("holdfast rm 17", "holdfast rm --state done,cancelled --until 7d --dry-run"),
        confirmation="They are deleted with their whole history. A running job, or one that a live job depends on, is"
        " refused.",
        states=tuple(state for state in State if state is not State.RUNNING),
        role=Role.ADMIN,
        destructive=True,
    ),
)
