"""The requests that are sent to each endpoint of the API and to each page. A new one needs requests of its own here.

A request that changes something is sent to a fresh copy of the store. ``{errors}`` and ``{units}`` stand for clusters of
errors: of dead jobs, and of units of batch 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Ask(NamedTuple):
    """One request. *role* is that of its token: None is nobody, ``session`` is an admin who has signed in."""

    path: str
    body: dict[str, Any] | str | None = None
    role: str | None = "admin"
    headers: Mapping[str, str] = MappingProxyType({})


def _act(path: str, *bodies: dict[str, Any]) -> tuple[Ask, ...]:
    """An act: without doing it, done, and for a viewer, who may not."""
    asks = [Ask(path, each) for body in bodies for each in ({**body, "dry_run": True}, body)]
    return *asks, Ask(path, bodies[0], "viewer")


_LATER = {"label": "mine", "queue": "later", "priority": 3, "delay": "2h", "key": "k", "after": [15], "hold": True}
_KEY = {"idempotency-key": "one"}

#: By method and path, as the description of the API has them.
API: dict[str, tuple[Ask, ...]] = {
    "GET /audit-log": (
        Ask("/audit-log"),
        Ask("/audit-log?limit=2"),
        Ask("/audit-log?actor=ada&text=queue"),
        Ask("/audit-log?before=3"),
        Ask("/audit-log?limit=0"),
    ),
    "GET /batches": (
        *(Ask(f"/batches{query}") for query in ("", "?limit=2", "?before=3", "?colour=red", "?state=sleepy")),
        Ask("/batches?state=cancelled,paused"),
        Ask("/batches?function=re*&owner=ada&since=90d"),
    ),
    "GET /batches/{id}/history": (
        Ask("/batches/2/history"),
        Ask("/batches/6/history?limit=1"),
        Ask("/batches/99/history"),
    ),
    "GET /inboxes": (Ask("/inboxes"),),
    "GET /inboxes/results": (Ask("/inboxes/results?inbox=results"), Ask("/inboxes/results")),
    "POST /inboxes/take": (
        Ask("/inboxes/take", {"inbox": "results"}),
        Ask("/inboxes/take", {"inbox": "results", "limit": 9, "lease": "5m"}),
        Ask("/inboxes/take", {"inbox": "results"}, "viewer"),
    ),
    "POST /inboxes/action": (
        Ask("/inboxes/action", {"action": "accept", "receipts": ["3.0", "4.1"]}),
        Ask("/inboxes/action", {"action": "accept", "receipts": ["3.1"]}),
        Ask("/inboxes/action", {"action": "accept", "receipts": ["seventeen"]}),
        Ask("/inboxes/action", {"action": "refuse", "receipts": ["3.0"], "note": "too dark"}),
    ),
    "POST /batches": (
        *_act("/batches", {"function": "copy", "range": "1-3"}),
        Ask("/batches", {"function": "copy", "keys": ["a"]}),
        Ask("/batches", {"function": "nowhere", "keys": [1]}),
    ),
    "POST /batches/action": (
        *_act("/batches/action", {"action": "rm", "state": "done"}, {"action": "cancel", "owner": "ada"}),
        Ask("/batches/action", {"action": "rm", "ids": [6]}),
        Ask("/batches/action", {"action": "rm"}),
        Ask("/batches/action", {"action": "sing", "state": "done"}),
    ),
    "GET /batches/{id}": (
        *(Ask(f"/batches/{number}") for number in (1, 2, 3, 4, 5, 6)),
        Ask("/batches/99"),
        Ask("/batches/x"),
    ),
    "GET /batches/{id}/units": (
        Ask("/batches/1/units?limit=5"),
        Ask("/batches/1/units?state=failed"),
        Ask("/batches/1/units?text=empty"),
        Ask("/batches/1/units?label=replaced&limit=2"),
        Ask("/batches/1/units?text=empty", role="viewer"),
        Ask("/batches/4/units"),
        Ask("/batches/6/units"),
        Ask("/batches/99/units"),
        Ask("/batches/1/units?state=nowhere"),
    ),
    "GET /errors": (Ask("/errors"), Ask("/errors", role="viewer")),
    "GET /events": (Ask("/events", role=None),),
    "GET /filters": (Ask("/filters"),),
    "GET /jobs": (
        Ask("/jobs?limit=3"),
        Ask("/jobs?limit=2&before=30"),
        Ask("/jobs?filter=state%3Ddead+kind%3Dcharge"),
        Ask("/jobs?filter=error%3Dbank"),
        Ask("/jobs?filter=error%3Dbank", role="viewer"),
        Ask("/jobs?filter=colour%3Dred"),
        Ask("/jobs?limit=many"),
        Ask("/jobs?colour=red"),
        Ask("/jobs?limit=1&limit=2"),
        Ask("/jobs", role=None),
        Ask("/jobs", role=None, headers={"authorization": "Bearer hf_00000000_wrong"}),
        Ask("/jobs", headers={"host": "elsewhere.example"}),
        Ask("/nowhere"),
    ),
    "GET /jobs/count": (Ask("/jobs/count"), Ask("/jobs/count?filter=state%3Ddead"), Ask("/jobs/count?filter=x")),
    "GET /jobs/{id}": (
        *(Ask(f"/jobs/{number}") for number in (15, 18, 23, 24, 25, 27, 28, 29, 30, 31, 36, 37, 38, 39, 51, 52, 56)),
        Ask("/jobs/23", role="viewer"),
        Ask("/jobs/999"),
        Ask("/jobs/99999999999999999999"),
    ),
    "GET /jobs/{id}/log": (
        Ask("/jobs/29/log"),
        Ask("/jobs/29/log?attempt=1&begin=10"),
        Ask("/jobs/29/log?search=error"),
        Ask("/jobs/29/log?attempt=7"),
        Ask("/jobs/30/log"),
        Ask("/jobs/15/log"),
    ),
    "GET /kinds": (Ask("/kinds"),),
    "GET /me": (Ask("/me"), Ask("/me", role="viewer"), Ask("/me", role=None)),
    "GET /openapi.json": (Ask("/openapi.json"),),
    "GET /overview": (Ask("/overview"),),
    "GET /queues": (Ask("/queues"),),
    "GET /schedule": (
        *(Ask(f"/schedule?name={name}") for name in ("rollup", "nightly", "regions", "poll", "hourly")),
        Ask("/schedule?name=rollup&limit=1"),
        Ask("/schedule?name=nowhere"),
        Ask("/schedule"),
    ),
    "GET /schedules": (Ask("/schedules"), Ask("/schedules?limit=2"), Ask("/schedules?after=nightly")),
    "GET /stop-switch": (Ask("/stop-switch"),),
    "GET /workers": (Ask("/workers"),),
    "POST /batches/{id}/action": (
        *_act("/batches/2/action", {"action": "resume"}, {"action": "cancel"}, {"action": "rm"}),
        *_act("/batches/6/action", {"action": "pause"}, {"action": "retry-failed"}, {"action": "rm"}),
        Ask("/batches/2/action", {"action": "sing"}),
        Ask("/batches/99/action", {"action": "pause"}),
    ),
    "POST /batches/{id}/units/action": (
        *_act(
            "/batches/1/units/action",
            {"action": "retry", "cluster": "{units}"},
            {"action": "skip", "cluster": "{units}"},
        ),
        Ask("/batches/1/units/action", {"action": "retry", "cluster": "0123456789ab"}),
        Ask("/batches/1/units/action", {"action": "sing", "cluster": "{units}"}),
    ),
    "POST /errors/action": (
        *_act("/errors/action", {"action": "retry", "cluster": "{errors}"}, {"action": "rm", "cluster": "{errors}"}),
        Ask("/errors/action", {"action": "retry", "cluster": "0123456789ab"}),
        Ask("/errors/action", {"action": "sing", "cluster": "{errors}"}),
    ),
    "POST /filters/action": (
        *_act(
            "/filters/action",
            {"action": "save", "name": "mine", "filter": "state=dead"},
            {"action": "rm", "name": "dead money"},
        ),
        Ask("/filters/action", {"action": "rm", "name": "nothing"}),
        Ask("/filters/action", {"action": "save", "name": "mine", "filter": "colour=red"}),
    ),
    "POST /jobs": (
        *_act(
            "/jobs", {"kind": "mail", "payload": {"to": "ada"}}, {"kind": "mail", "payload": {"to": "ada"}, **_LATER}
        ),
        Ask("/jobs", {"kind": "mail", "payload": {"to": "ada"}, "key": "mail-key"}),
        Ask("/jobs", {"kind": "mail", "payload": {"to": "ada"}}, headers=_KEY),
        Ask("/jobs", {"kind": "mail", "payload": {"too": "ada"}}),
        Ask("/jobs", {"kind": "male"}),
        Ask("/jobs", {"kind": "mail", "colour": "red"}),
        Ask("/jobs", {"kind": "command", "payload": {"argv": ["make"], "cwd": "/"}}, "operator"),
        Ask("/jobs", {"kind": "command", "payload": {"argv": ["make"], "cwd": "/", "env": {}}}),
        Ask("/jobs", "{", headers={"content-type": "application/json"}),
        Ask("/jobs", "kind=mail", headers={"content-type": "application/x-www-form-urlencoded"}),
    ),
    "POST /jobs/action": (
        *(
            ask
            for verb in ("cancel", "pause", "resume", "retry", "kill", "restart", "hold", "unhold", "rm")
            for ask in _act("/jobs/action", {"action": verb, "filter": "id=18,24,29,37,52"})[: 3 if verb == "rm" else 2]
        ),
        *_act("/jobs/action", {"action": "set", "filter": "label=fetch", "priority": 7, "to_queue": "later"}),
        Ask("/jobs/action", {"action": "hold", "filter": "id=34", "note": "the moon"}),
        Ask("/jobs/action", {"action": "set", "filter": "label=fetch"}),
        Ask("/jobs/action", {"action": "sing", "filter": "id=18"}),
        Ask("/jobs/action", {"action": "hold", "filter": ""}),
        Ask("/jobs/action", {"action": "hold", "filter": "id=999"}),
        Ask("/jobs/action", {"action": "rm", "filter": "id=18"}, "operator"),
    ),
    "POST /queues/action": (
        *_act(
            "/queues/action",
            {"queue": "default", "action": "set", "limit": 3, "worker_limit": 2},
            {"queue": "default", "action": "pause", "note": "the moon"},
            {"queue": "imports", "action": "resume"},
        ),
        Ask("/queues/action", {"queue": "new", "action": "pause"}),
        Ask("/queues/action", {"queue": "new", "action": "pause", "create": True}),
        Ask("/queues/action", {"queue": "imports", "action": "rm"}),
        Ask("/queues/action", {"queue": "default", "action": "resume"}),
        Ask("/queues/action", {"queue": "default", "action": "set"}),
        Ask("/queues/action", {"queue": "default", "action": "set", "limit": -1}),
        Ask("/queues/action", {"queue": "default", "action": "pause", "limit": 1}),
        Ask("/queues/action", {"queue": "default", "action": "sing"}),
    ),
    "POST /schedules/action": (
        *_act("/schedules/action", {"name": "rollup", "action": "pause", "note": "the moon"}),
        *_act("/schedules/action", {"name": "nightly", "action": "resume"}),
        *_act("/schedules/action", {"name": "regions", "action": "trigger", "scopes": ["eu"]}),
        *_act("/schedules/action", {"name": "rollup", "action": "backfill", "first": "2030-01-01T06:00:00Z"}),
        *_act("/schedules/action", {"name": "rollup", "action": "rm"}),
        Ask("/schedules/action", {"name": "rollup", "action": "rm"}, "operator"),
        Ask("/schedules/action", {"name": "rollup", "action": "backfill"}),
        Ask("/schedules/action", {"name": "rollup", "action": "sing"}),
        Ask("/schedules/action", {"name": "nowhere", "action": "pause"}),
    ),
    "POST /stop-switch/action": (
        *_act("/stop-switch/action", {"action": "drain", "note": "the moon"}, {"action": "emergency-stop"}),
        *_act("/stop-switch/action", {"action": "resume"}),
        Ask("/stop-switch/action", {"action": "sing"}),
    ),
    "POST /workers/action": (
        *_act("/workers/action", {"worker": "worker-1", "action": "quiet"}, {"worker": "worker-1", "action": "go-on"}),
        Ask("/workers/action", {"worker": "nobody", "action": "stop"}),
        Ask("/workers/action", {"worker": "worker-1", "action": "sing"}),
    ),
}

#: By method and path, as the routes of the site have them. The body is a form.
PAGES: dict[str, tuple[Ask, ...]] = {
    "GET /": (Ask("/"), Ask("/", role="viewer"), Ask("/", role="session"), Ask("/", role=None), Ask("/nowhere")),
    "GET /audit-log": (Ask("/audit-log"), Ask("/audit-log?actor=ada&text=queue"), Ask("/audit-log?actor=nobody")),
    "GET /batches": (
        Ask("/batches"),
        Ask("/batches?before=3"),
        Ask("/batches?state=done&owner=ada"),
        Ask("/batches?name=nowhere"),
    ),
    "GET /batches/{id:int}": (
        *(Ask(f"/batches/{number}") for number in (1, 2, 3, 4, 5, 6)),
        Ask("/batches/1?state=failed&text=message"),
        Ask("/batches/99"),
        Ask("/batches/1", role="viewer"),
    ),
    "GET /dependencies": (Ask("/dependencies"), Ask("/dependencies?job=35"), Ask("/dependencies?job=999")),
    "GET /doctor": (Ask("/doctor"),),
    "GET /errors": (Ask("/errors"), Ask("/errors", role="viewer")),
    "GET /find": (Ask("/find?q=15"), Ask("/find?q=invoice"), Ask("/find?q=state%3Ddead"), Ask("/find?q=")),
    "GET /healthz": (Ask("/healthz", role=None),),
    "GET /inboxes": (Ask("/inboxes"), Ask("/inboxes?inbox=results"), Ask("/inboxes?inbox=nowhere")),
    "GET /jobs": (
        Ask("/jobs"),
        Ask("/jobs?filter=state%3Ddead"),
        Ask("/jobs?filter=label%3Dnothing"),
        Ask("/jobs?filter=colour%3Dred"),
        Ask("/jobs?filter=state%3Ddead", role="viewer"),
        Ask("/jobs?filter=state%3Ddead", role=None),
    ),
    "GET /jobs/{id:int}": (
        *(Ask(f"/jobs/{number}") for number in (15, 18, 23, 24, 25, 27, 28, 29, 30, 31, 35, 37, 38, 51, 52)),
        Ask("/jobs/23", role="viewer"),
        Ask("/jobs/999"),
    ),
    "GET /jobs/{id:int}/log": (
        Ask("/jobs/29/log"),
        Ask("/jobs/29/log?find=error"),
        Ask("/jobs/30/log"),
        Ask("/jobs/15/log"),
    ),
    "GET /live": (Ask("/live", role=None),),
    "GET /login": (Ask("/login", role=None), Ask("/login?next=/jobs", role=None)),
    "GET /sign-in": (Ask("/sign-in?link=something", role=None), Ask("/sign-in", role=None)),
    "GET /metrics": (Ask("/metrics"), Ask("/metrics", role=None)),
    "GET /queues": (Ask("/queues"), Ask("/queues?name=builds"), Ask("/queues", role="viewer")),
    "GET /readyz": (Ask("/readyz", role=None),),
    "GET /schedule": (
        *(Ask(f"/schedule?name={name}") for name in ("rollup", "nightly", "regions", "poll", "hourly", "nowhere")),
    ),
    "GET /schedules": (Ask("/schedules"),),
    "GET /workers": (Ask("/workers"), Ask("/workers", role="viewer")),
    "POST /batches/{id:int}/action": (
        Ask("/batches/2/action", {"action": "resume"}),
        Ask("/batches/6/action", {"action": "pause"}),
        Ask("/batches/6/action", {"action": "cancel"}),
        Ask("/batches/6/action", {"action": "cancel", "sure": "1"}),
        Ask("/batches/3/action", {"action": "rm"}),
        Ask("/batches/3/action", {"action": "rm", "sure": "1"}),
        Ask("/batches/6/action", {"action": "rm", "sure": "1"}),
        Ask("/batches/2/action", {"action": "sing"}),
        Ask("/batches/2/action", {"action": "resume"}, "viewer"),
    ),
    "POST /batches/{id:int}/units": (
        Ask("/batches/1/units", {"action": "retry", "cluster": "{units}"}),
        Ask("/batches/1/units", {"action": "skip", "cluster": "{units}"}),
        Ask("/batches/1/units", {"action": "skip", "cluster": "{units}", "sure": "1"}),
    ),
    "POST /errors/action": (
        Ask("/errors/action", {"action": "retry", "cluster": "{errors}"}),
        Ask("/errors/action", {"action": "rm", "cluster": "{errors}"}),
        Ask("/errors/action", {"action": "retry", "cluster": "{errors}", "sure": "1"}),
    ),
    "POST /filters": (
        Ask("/filters", {"name": "mine", "filter": "state=dead"}),
        Ask("/filters", {"name": "mine", "filter": ""}),
    ),
    "POST /filters/drop": (Ask("/filters/drop?name=dead+money", {}), Ask("/filters/drop?name=nothing", {})),
    "POST /inboxes/action": (
        Ask("/inboxes/action?inbox=results", {"action": "accept", "receipt": "3.0"}),
        Ask("/inboxes/action?inbox=results", {"action": "refuse", "receipt": "3.0"}),
        Ask("/inboxes/action?inbox=results", {"action": "refuse", "receipt": "3.0", "note": "too dark", "sure": "1"}),
        Ask("/inboxes/action?inbox=results", {"action": "accept", "receipt": "99.1", "sure": "1"}),
        Ask("/inboxes/action?inbox=results", {"action": "accept", "receipt": "3.0"}, "viewer"),
    ),
    "POST /jobs/action": (
        Ask("/jobs/action", {"action": "hold", "id": "34", "note": "the moon", "back": "state=scheduled"}),
        Ask("/jobs/action", {"action": "retry", "which": "all", "filter": "state=dead"}),
        Ask("/jobs/action", {"action": "retry", "which": "all", "filter": "state=dead", "sure": "1"}),
        Ask("/jobs/action", {"action": "rm", "id": "18"}),
        Ask("/jobs/action", {"action": "rm", "id": "18", "sure": "1"}),
        Ask("/jobs/action", {"action": "retry", "which": "all", "filter": ""}),
        Ask("/jobs/action", {"action": "retry"}),
        Ask("/jobs/action", {"action": "sing", "id": "18"}),
        Ask("/jobs/action", {"action": "hold", "id": "15"}),
        Ask("/jobs/action", {"action": "hold", "id": "34"}, "viewer"),
        Ask("/jobs/action", {"action": "hold", "id": "34", "form_token": "wrong"}),
    ),
    "POST /jobs/{id:int}/action": (
        Ask("/jobs/18/action", {"action": "retry"}),
        Ask("/jobs/15/action", {"action": "retry"}),
        Ask("/jobs/34/action", {"action": "set", "priority": "7", "to_queue": "later"}),
        Ask("/jobs/34/action", {"action": "set", "priority": "much"}),
        Ask("/jobs/18/action", {"action": "rm"}),
        Ask("/jobs/18/action", {"action": "rm"}, "operator"),
        Ask("/jobs/999/action", {"action": "retry"}),
    ),
    "POST /login": (
        Ask("/login", {"token": "{admin}", "next": "/jobs"}, None),
        Ask("/login", {"token": "wrong"}, None),
        Ask("/login", {"token": "{admin}", "next": "//elsewhere.example"}, None),
    ),
    "POST /sign-in": (
        Ask("/sign-in", {"link": "{link}", "name": "ada"}, None),
        Ask("/sign-in", {"link": "{link}", "name": ""}, None),
        Ask("/sign-in", {"link": "{link}", "name": "admin"}, None),
        Ask("/sign-in", {"link": "wrong", "name": "ada"}, None),
    ),
    "POST /logout": (Ask("/logout", {}, "session"), Ask("/logout", {}), Ask("/logout", {"form_token": "wrong"})),
    "POST /queues/action": (
        Ask("/queues/action?name=default", {"action": "set", "limit": "3", "worker_limit": "2"}),
        Ask("/queues/action?name=reports", {"action": "set"}),
        Ask("/queues/action?name=default", {"action": "pause", "note": "the moon"}),
        Ask("/queues/action?name=imports", {"action": "resume"}),
        Ask("/queues/action?name=imports", {"action": "rm"}),
        Ask("/queues/action?name=imports", {"action": "rm", "sure": "1"}),
        Ask("/queues/action?name=default", {"action": "sing"}),
    ),
    "POST /schedule/action": (
        Ask("/schedule/action?name=rollup", {"action": "pause", "note": "the moon"}),
        Ask("/schedule/action?name=nightly", {"action": "resume"}),
        Ask("/schedule/action?name=regions", {"action": "trigger", "scopes": "eu"}),
        Ask("/schedule/action?name=rollup", {"action": "backfill", "first": "2030-01-01T06:00"}),
        Ask("/schedule/action?name=rollup", {"action": "backfill", "first": "2030-01-01T06:00", "sure": "1"}),
        Ask("/schedule/action?name=rollup", {"action": "rm"}),
        Ask("/schedule/action?name=rollup", {"action": "rm", "sure": "1"}),
        Ask("/schedule/action?name=rollup", {"action": "rm", "sure": "1"}, "operator"),
        Ask("/schedule/action?name=nowhere", {"action": "pause"}),
    ),
    "POST /stop-switch/action": (
        Ask("/stop-switch/action", {"action": "drain", "note": "the moon"}),
        Ask("/stop-switch/action", {"action": "emergency-stop"}),
        Ask("/stop-switch/action", {"action": "emergency-stop", "sure": "1"}),
        Ask("/stop-switch/action", {"action": "resume"}),
        Ask("/stop-switch/action", {"action": "sing"}),
    ),
    "POST /workers/action": (
        Ask("/workers/action?id=worker-1", {"action": "quiet"}),
        Ask("/workers/action?id=worker-1", {"action": "stop"}),
        Ask("/workers/action?id=worker-1", {"action": "stop", "sure": "1"}),
        Ask("/workers/action?id=nobody", {"action": "quiet"}),
    ),
}
