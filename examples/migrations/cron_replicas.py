"""A replicated cron manager: every replica plans, each plan fires once, leases are fenced, executions are recorded.

| before                                     | now                                                              |
|--------------------------------------------|------------------------------------------------------------------|
| a job registered with an interval or cron  | `@app.schedule(…)` above `@app.job(…)`                           |
| every replica runs the manager             | `holdfast worker --app cron_replicas:app` on each; no leader     |
| `scopes(now)`: the tenants of a plan       | a function with a parameter gets the time of the plan            |
| a scope of several columns                 | one text: `ada/eu`                                               |
| a delay, so that data settle               | `delay="30s"`; the plan keeps its time                           |
| catch-up within a window                   | `catch_up="every"`, `window="24h"`                               |
| the maximum number of plans in a tick      | fixed: 2,000 times of a schedule, and the next tick follows      |
| the runner id, the interval of heartbeats  | the worker's host and a random number; from the lease of the job |
| one row for each execution                 | `holdfast schedule history`; attempts: `holdfast show JOB`       |
| executions of one tenant                   | `holdfast ls --label rollup --tag scope=ada`                     |
"""

from __future__ import annotations

from datetime import datetime

import holdfast
from holdfast import Plan

app = holdfast.Holdfast()  # the store: HOLDFAST_URL, such as postgresql://cron@db/cron
JOINED = {"ada": 2020, "bob": 2020, "eve": 2031}
totals: dict[tuple[str, datetime], int] = {}
failing: set[str] = set()


def tenants(time: datetime) -> list[str]:
    """The tenants that existed at the time of the plan, also when it is backfilled years later."""
    return [name for name, year in JOINED.items() if year <= time.year]


@app.schedule("*/5 * * * *", scopes=tenants, catch_up="every", window="1h", delay="30s")
@app.job(queue="cron", lease="60s", timeout="10m", retry=["1m", "5m", "15m"])
def rollup(plan: Plan) -> int:
    """Add up five minutes of one tenant. `plan.key` is the same in every attempt."""
    if plan.scope in failing:
        raise ConnectionError("the database of the tenant does not answer")
    totals[plan.scope, plan.time] = totals.get((plan.scope, plan.time), 0) + 1
    return totals[plan.scope, plan.time]


@app.schedule("30 2 * * *", tz="Europe/Berlin")
@app.job(queue="cron", on_lost="hold", max_attempts=1)
def invoice(plan: Plan) -> str:
    """Work that must not run twice: after a lost worker a person decides."""
    return f"invoices of {plan.time:%Y-%m-%d}"
