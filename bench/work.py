"""The work that all systems do, so that none is measured on an easier job.

Nothing is imported here: the peers load this file in an environment of their own.
"""

from __future__ import annotations

PAYLOAD = '{"user": 12345, "template": "welcome"}'
KIND = "mail"
QUEUE = "bench"
#: Jobs in one call of a bulk enqueue.
BULK = 10_000


def chunks(count: int, size: int = BULK) -> list[int]:
    """The sizes of the calls that make up *count* jobs."""
    full, rest = divmod(count, size)
    return [size] * full + ([rest] if rest else [])
