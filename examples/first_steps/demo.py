"""Holdfast in a minute: jobs are enqueued, run, fail, are tried again, and end.

Run it with ``make run``, or ``python examples/first_steps/demo.py``.
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import holdfast
from holdfast.client.jobs.job_ref import JobRef
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.testing import run_ready


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        app = holdfast.Holdfast(f"sqlite:///{Path(folder) / 'jobs.db'}")
        send, report = register(app)
        tell("A store is one SQLite file; nothing has to be set up.", app.url)

        mails = [send.enqueue(to=name) for name in ("ada", "grace", "nobody")]
        tell("Three jobs are enqueued. They are safe on disk before the call returns.", *map(describe, mails))

        summary = report.options(after=mails[:2]).enqueue(title="mails")
        tell("A fourth one waits for two of them.", describe(summary), why(app, summary))

        twin = send.options(key="welcome-ada").enqueue(to="ada")
        again = send.options(key="welcome-ada").enqueue(to="ada")
        tell("A key makes a job unique: the second call is answered with the first job.", f"{twin!r} and {again!r}")

        tell("Now they run. The mail to nobody fails and is tried again after a second.")
        run_until_quiet(app)

        tell("How it ended:", *(describe(job) for job in (*mails, twin, summary)))
        tell("Nothing is forgotten. The history of the mail to nobody:", *history(app, mails[2]))
        tell("Its error is kept for a person, who can mend the cause and run it again:")
        app.control.retry(holdfast.Selector(ids=(mails[2].id,)), actor="you")
        say("  " + describe(mails[2]))
        app.close()
    say("\nThat was Holdfast. Read README.md for what comes next.")


def register(app: holdfast.Holdfast):  # noqa: ANN201 - the handlers' types are spelt out below
    """Register the two kinds of job of this demonstration."""

    @app.job(max_attempts=2, retry=["1s"])
    def send(to: str) -> str:
        if to == "nobody":
            message = "there is no such address"
            raise LookupError(message)
        return f"mail to {to} sent"

    @app.job()
    def report(title: str) -> str:
        return f"report on {title} written"

    return send, report


def run_until_quiet(app: holdfast.Holdfast) -> None:
    """Run what is ready, and wait for what is scheduled."""
    bell = threading.Event()
    while True:
        for settlement in run_ready(app):
            job, outcome = settlement.lease, settlement.outcome
            match outcome:
                case Done(result):
                    say(f"  job {job.job_id} ({job.kind}), attempt {job.attempt}: done, {result}")
                case Failed(error=error):
                    say(f"  job {job.job_id} ({job.kind}), attempt {job.attempt}: failed, {first_line(error)}")
        if app.views.count(holdfast.Selector(states=(holdfast.State.SCHEDULED,))).count == 0:
            return
        bell.wait(0.1)


def describe(ref: JobRef) -> str:
    job = ref.job()
    ending = f", {job.result or first_line(job.error)}" if job.state.finished else ""
    return f"job {job.id} ({job.kind}) is {job.state}{ending}"


def first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]


def why(app: holdfast.Holdfast, ref: JobRef) -> str:
    return f"why does job {ref.id} not run? {app.views.why(ref.id)[0].text}"


def history(app: holdfast.Holdfast, ref: JobRef) -> list[str]:
    return [f"{event.at:%H:%M:%S} {event.name} by {event.actor}" for event in app.views.events(ref.id)]


def tell(title: str, *lines: str) -> None:
    say(f"\n{title}")
    for line in lines:
        say(f"  {line}")


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
