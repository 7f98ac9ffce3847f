"""``show``."""

from __future__ import annotations


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
