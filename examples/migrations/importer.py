"""A bulk importer: items with counters, a result inbox for each user, pause and cancel.

| before                                   | now                                                                    |
|------------------------------------------|------------------------------------------------------------------------|
| a job row and item rows                  | a batch and its units                                                  |
| a leader that ticks                      | every worker; there is no leader                                       |
| counters saved, duplicate, failed        | labels, and `failed`. `saved` counts from the hand-over on:            |
|                                          | subtract `in_inbox`                                                    |
| `completed`, also with failed items      | `done`, `partial` or `failed`: failed items make a batch partial       |
| the browser takes results, any process   | `take`, `receipt`, `accept(receipt)`; or a token of one inbox          |
| accepts them                             | (`holdfast token add ada --scope inbox=pickup/ada`) and the HTTP API   |
| a sweep after 24 hours                   | the same; a line in the log and an event in the history of the batch   |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import holdfast

app = holdfast.Holdfast()  # the store: HOLDFAST_URL, or url in holdfast.toml
SITES = {"https://a.example/1": "one", "https://a.example/2": "two", "https://a.example/3": "three"}
KNOWN = {"https://a.example/3"}


@app.unit(retries=2, retry=["10ms"], timeout="30s", rate=50)
def fetch(address: str, *, user: str, unit: holdfast.Unit) -> None:
    """Fetch one address, and hand the text over to the browser of the user."""
    if address in KNOWN:
        unit.done("duplicate")
        return
    unit.done("saved")
    unit.hand_over({"address": address, "text": SITES[address]}, inbox=f"pickup/{user}")


def start(user: str, addresses: Iterable[str]) -> int:
    """POST /imports: the workers fetch; the batch has the name of the user."""
    return app.submit(fetch.bind(user=user), list(addresses), name=f"import of {user}").id


def pick_up(user: str, limit: int = 10) -> list[dict[str, Any]]:
    """GET /pickup: results for one browser, each with its receipt."""
    taken = app.inbox(f"pickup/{user}").take(limit, lease_duration="10m")
    return [{**result.value, "receipt": result.receipt} for result in taken]


def acknowledge(user: str, receipt: str, problem: str | None = None) -> None:
    """POST /pickup/RECEIPT: in any process, whichever took the result."""
    inbox = app.inbox(f"pickup/{user}")
    inbox.accept(receipt) if problem is None else inbox.refuse(receipt, problem)
