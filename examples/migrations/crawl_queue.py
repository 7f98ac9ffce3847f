"""A crawler's queue on PostgreSQL: enqueue without doubles, lease, retry, release, reap.

| before                                   | now                                                               |
|------------------------------------------|-------------------------------------------------------------------|
| `INSERT … ON CONFLICT DO NOTHING`        | `unique=["url"]`: one live job for each address                   |
| `lease()`, `ack()`, a loop of your own   | a worker: `holdfast worker --app crawl_queue:app --kind fetch`    |
| `retry(delay)` with a curve              | `retry=[…]`: the last delay repeats                               |
| `release()` when a session has expired   | `raise Release`, and pause the queue: no attempt is lost          |
| a reaper of expired leases               | each worker: a lost job runs again, with a new token              |
| rows in `dead`                           | `holdfast ls --state dead`, `holdfast retry --state dead`         |
| `SELECT enqueue(…)` in a transaction     | the function `holdfast.enqueue`, or `fetch.enqueue` in Python     |
| a worker in another language             | not yet: workers are Python. Other languages enqueue, by SQL or   |
|                                          | HTTP, and a worker can run their programs as commands             |
"""

from __future__ import annotations

import holdfast
from holdfast import Context, Fail, Release

app = holdfast.Holdfast()  # the store: HOLDFAST_URL, such as postgresql://crawler@db/crawl
PAGES = {"/": ["/a", "/b", "/gone"], "/a": ["/"], "/b": ["/a", "/slow"], "/slow": []}
session = {"open": True}
tries: dict[str, int] = {}


@app.job(queue="crawl", unique=["url"], retry=["10ms", "5m", "15m"], max_attempts=4, lease="60s", timeout="10m")
def fetch(url: str, job: Context, depth: int = 0) -> int:
    """Fetch a page, and enqueue the pages that it leads to; returns their number."""
    if not session["open"]:
        app.queues.pause("crawl", note="the session has expired")
        raise Release("the session has expired")
    if url not in PAGES:
        raise Fail(f"not found: {url}")  # permanent: dead at once
    tries[url] = tries.get(url, 0) + 1
    if url == "/slow" and tries[url] == 1:
        raise TimeoutError("the site is slow")  # costs an attempt, and runs again after 10 ms
    if depth < 3:
        for link in PAGES[url]:
            job.enqueue("fetch", {"url": link, "depth": depth + 1}, priority=-depth)
    return len(PAGES[url])


def sign_in() -> None:
    """Open the session again: the queue continues where it stopped."""
    session["open"] = True
    app.queues.resume("crawl")
