"""``show``."""

from __future__ import annotations


def test_secrets_are_not_shown(run, app):
    """By name or by declaration, in ``show`` and ``ls``, in the error too."""

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
