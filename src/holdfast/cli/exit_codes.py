"""Exit codes: one table for all commands."""

from __future__ import annotations

EXITS: dict[int, tuple[str, str]] = {
    0: ("ok", "Everything asked for was done."),
    1: ("failed", "The work failed, all of it."),
    2: ("usage", "The command itself is wrong: a flag, a value, a payload."),
    3: ("not_found", "Nothing matches: no such job, key, label, queue or kind."),
    4: ("configuration", "The configuration or a permission stands in the way."),
    5: ("store_unavailable", "The store does not answer. Try again later."),
    6: ("partial", "Some of it failed, some of it was done."),
    7: ("aborted", "Stopped on request; run the same command again to go on."),
    8: ("breaker", "Too many failures in a row; mend the cause, then run it again."),
    9: ("conflict", "Somebody else holds it."),
    10: ("deadline", "The time was up before the end."),
    11: ("paused", "It is paused."),
    12: ("cancelled", "It was cancelled."),
    13: ("nothing_to_do", "There was nothing to do, and that was to be told."),
    14: ("drift", "Code or input has changed under an open run."),
    15: ("lease_lost", "The lease was lost to another holder."),
    130: ("interrupted", "A second interrupt: out at once."),
}
