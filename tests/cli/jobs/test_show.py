"""``show``."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.domain.jobs.job import WorkerId
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Failed
from tests.support.jobs import claim_jobs


def test_show_prints_every_field(run, app):
    ref = app.enqueue("mail", {"to": 1}, hold=True)
    data = run("show", ref.id, "-o", "json").data
    assert data["job"]["payload"] == {"to": 1}
    assert data["why"]
    text = run("show", ref.id).out
    assert all(word in text for word in ("held", "history", "enqueued"))


def test_the_history_names_the_actor(run, app):
    ref = app.enqueue("mail", {"to": 1})
    run("cancel", ref.id)
    event = run("show", ref.id, "-o", "json").data["events"][-1]
    assert event["name"] == "cancelled"
    assert not event["actor"].startswith("holdfast:")


def test_secrets_are_not_shown(run, app):
    """``show`` and ``ls`` mask secrets by name and by declaration, also in errors."""

    @app.job(secrets=["iban"], max_attempts=1)
    def pay(iban: str, password: str) -> None:
        raise ValueError(f"cannot pay {iban} with {password}")

    app.enqueue("pay", {"iban": "DE02-1234", "password": "hunter22"})
    app.worker(drain=True, poll=0.02).run()
    for arguments in (["show", "1"], ["show", "1", "-o", "json"], ["ls"], ["ls", "-o", "json"]):
        out = run(*arguments).out
        assert "hunter22" not in out
        assert "DE02-1234" not in out
        assert "***" in out


def test_earlier_attempts_have_their_errors_and_versions(run, app):
    """In text as in JSON: the first line of each error, and the code that ran the attempt."""
    ref = app.enqueue("mail", {"to": 1}, max_attempts=2)
    for number, error in ((1, "no route to host\nTraceback"), (2, "mailbox is full")):
        app.store.workers.announce(
            WorkerId(f"w{number}"), host="h", pid=1, queues=["default"], kinds=["mail"], version=f"2.{number}"
        )
        app.store.control.reschedule(Selector(ids=(ref.id,)), datetime.now(UTC), actor="ada")
        (lease,) = claim_jobs(app.store, f"w{number}", queues=["default"], kinds=["mail"])
        app.store.leases.settle(lease, Failed(error=error))
    assert run("show", ref.id, "-o", "json").data["job"]["state"] == "dead"
    _, shown = run("show", ref.id).out.split("attempts\n")
    first, first_error, second, second_error, *_ = shown.splitlines()
    assert first.endswith("handler_error  token 1  w1  version 2.1")
    assert second.endswith("handler_error  token 2  w2  version 2.2")
    assert (first_error.strip(), second_error.strip()) == ("no route to host", "mailbox is full")
