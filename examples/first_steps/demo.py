"""Holdfast in a minute: enqueue jobs, run them, and see one fail, retry and finish.

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
        tell("The store is one SQLite file. It needs no setup.", app.url)

        mails = [send.enqueue(to=name) for name in ("ada", "grace", "nobody")]
        tell("Enqueue three jobs. Each is on disk when the call returns.", *map(describe, mails))

        summary = report.options(after=mails[:2]).enqueue(title="mails")
        tell("A fourth job depends on two of them.", describe(summary), why(app, summary))

        twin = send.options(key="welcome-ada").enqueue(to="ada")
        again = send.options(key="welcome-ada").enqueue(to="ada")
        tell("A key makes a job unique: the second call returns the first job.", f"{twin!r} and {again!r}")

        tell("Run them. The mail to nobody fails, and Holdfast retries it after a second.")
        run_until_quiet(app)

        tell("Outcomes:", *(describe(job) for job in (*mails, twin, summary)))
        tell("The history of the mail to nobody:", *history(app, mails[2]))
        tell("Its error is stored. Fix the cause, then run it again:")
        app.control.retry(holdfast.Selector(ids=(mails[2].id,)), actor="you")
        say("  " + describe(mails[2]))
        app.close()
    say("\nNext: docs/guides/first-steps.md shows a job that survives kill -9.")


def register(app: holdfast.Holdfast):  # noqa: ANN201 - the handlers' types are spelt out below
    """Register the two kinds of this demo."""

    @app.job(max_attempts=2, retry=["1s"])
    def send(to: str) -> str:
        if to == "nobody":
            message = "unknown address"
            raise LookupError(message)
        return f"mail to {to} sent"

    @app.job()
    def report(title: str) -> str:
        return f"report on {title} written"

    return send, report


def run_until_quiet(app: holdfast.Holdfast) -> None:
    """Run ready jobs, and wait for scheduled ones."""
    clock = threading.Event()
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
        clock.wait(0.1)


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
