"""``--after``: the jobs that a new one starts after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import click

from holdfast.cli.session import CliSession
from holdfast.domain.jobs.dependencies import After, When
from holdfast.domain.jobs.job import JobId
from holdfast.domain.jobs.selector import Selector
from holdfast.errors import InvalidInput, NoSuchJob

#: The conditions: how the other job has to finish.
_WHEN = {"ok": When.DONE, "finished": When.FINISHED, "failed": When.FAILED}

after_option = click.option(
    "--after",
    "dependencies",
    multiple=True,
    metavar="[ok:|finished:|failed:]JOB,…",
    help="Start after jobs: ids, label=L, key=K or queue=Q; repeatable. The default condition is ok:.",
)


def read_after(session: CliSession, dependencies: Sequence[str], *, kind: str) -> After | None:
    """Resolve ``--after``: all dependencies share one condition, and a queue means the jobs in it now.

    Keys are those of jobs of *kind*.
    """
    if not dependencies:
        return None
    conditions, ids, fields = set[When](), list[JobId](), {"label": list[str](), "key": list[str]()}
    for condition, field, value in _parse_dependencies(dependencies):
        conditions.add(condition)
        if field in fields:
            fields[field].append(value)
        else:
            ids += [JobId(int(value))] if field == "id" else _jobs_in(session, value)
    if len(conditions) > 1:
        hint = "Use the same condition (ok:, finished: or failed:) for all of them."
        raise InvalidInput("a job has one condition for all dependencies", hint=hint)
    keys = tuple((kind, key) for key in fields["key"])
    return After(ids=tuple(ids), keys=keys, labels=tuple(fields["label"]), when=conditions.pop())


def _parse_dependencies(dependencies: Iterable[str]) -> Iterator[tuple[When, str, str]]:
    """Parse ``[ok:|finished:|failed:]JOB,…`` into conditions, fields (id, label, key or queue) and values.

    A condition holds for the rest of its list. A piece that names no job belongs to the value before it, so labels and
    keys may contain commas.
    """
    for text in dependencies:
        condition, parsed = When.DONE, list[tuple[When, str, str]]()
        for piece in text.split(","):
            prefix, colon, rest = piece.partition(":")
            condition, job = (_WHEN[prefix], rest) if colon and prefix in _WHEN else (condition, piece)
            field, assigned, value = job.partition("=")
            if job.isdecimal():
                parsed.append((condition, "id", job))
            elif assigned and field in ("label", "key", "queue"):
                parsed.append((condition, field, value))
            elif parsed and parsed[-1][1] != "id" and piece:
                parsed[-1] = (*parsed[-1][:2], f"{parsed[-1][2]},{piece}")
            else:
                hint = "Write 17, finished:17,18, label=nightly, queue=slow."
                raise InvalidInput(f"{text!r} names no job", hint=hint)
        yield from parsed


def _jobs_in(session: CliSession, queue: str) -> list[JobId]:
    from holdfast.admin.views.jobs import list_jobs

    ids = [job.id for job in list_jobs(session.store, Selector(queues=(queue,)))]
    if not ids:
        raise NoSuchJob(f"there is no job in the queue {queue!r}")
    return ids
