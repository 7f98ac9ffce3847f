"""``token``."""

from __future__ import annotations


def test_a_token_is_printed_once(run, app):
    """Later lists show only prefix, role and last use; a revoked token stays in the list."""
    secret = run("token", "add", "ci", "--role", "operator", "--quiet").out.strip()
    assert secret.startswith("hf_")
    (listed,) = run("token", "ls", "-o", "json").data["tokens"]
    assert (listed["name"], listed["role"], listed["prefix"]) == ("ci", "operator", secret[:11])
    assert secret[12:] not in run("token", "ls").out + run("audit-log").out
    assert run("token", "add", "ci").code == 9
    assert run("token", "rm", "ci").code == 0
    assert "revoked" in run("token", "ls").out
    assert run("token", "rm", "ci").code == 3
