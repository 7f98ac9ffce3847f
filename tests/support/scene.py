"""A store with an example of everything that pages show, for tests and pictures."""

from __future__ import annotations

import os
from typing import Any

import holdfast
from holdfast import Holdfast
from holdfast.admin.actions.actions import Actions
from holdfast.domain.access.audit import Via
from holdfast.domain.commands.command import COMMAND, Command
from holdfast.domain.fleet.autoscaler import AutoscalerAction, AutoscalerDecision
from holdfast.domain.jobs.job import JobId, WorkerId
from holdfast.domain.jobs.new_job import NewJob
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Failed
from holdfast.settings import log_folder
from holdfast.store import Store
from holdfast.testing import drain
from holdfast.worker.commands.log_files import log_path
from tests.support.jobs import claim_jobs

#: The log of a command: colours, a bell, a window title, and a secret of its payload.
LOG = (
    "\x1b[1mbuilding\x1b[0m 3 targets\n"
    "\x1b[32mok\x1b[0m   parser\n"
    "\x1b[33mwarn\x1b[0m cache is cold\x07\n"
    "\x1b]0;a title\x07\x1b[31merror\x1b[0m linker: undefined symbol `frobnicate` {text}\n"
    "the token was s3cr3t-value-here\n"
)


class Scene:
    """The ids of the jobs and batches in the store, by purpose."""

    def __init__(self, app: Holdfast, text: str = "") -> None:
        self.app = app
        self.text = text
        self.actions = Actions(app.store, actor=f"ada{text}"[:100].strip(), via=Via.CLI)
        self.jobs: dict[str, JobId] = {}
        self.batches: dict[str, int] = {}
        self.handlers, self.resync = _kinds(app, text)

    def build(self) -> Scene:
        """Create everything, in the order in which it would happen."""
        self._fired()
        self._done()
        self._dead()
        self._command()
        self._waiting()
        self._batch()
        self._running()
        self._switches()
        return self

    def _put(self, name: str, kind: str, /, **options: Any) -> JobId:
        payload, handler = options.pop("payload", {}), self.handlers[kind]
        self.jobs[name] = handler.options(**options).enqueue(**payload).id
        return self.jobs[name]

    def _fired(self) -> None:
        schedules = self.app.schedules
        schedules.create("nightly", "mail", "30 2 * * *", tz="Europe/Berlin", payload={"to": "ada"})
        schedules.create(f"hourly{_seen(self.text)}"[:100], "mail", "every 1h", payload={"to": f"grace{self.text}"})
        self.actions.schedules.perform("trigger", "nightly")
        self.actions.schedules.perform("pause", "nightly", note=f"the index is rebuilt{self.text}")

    def _done(self) -> None:
        for name in ("ada", "grace", "linus"):
            self._put(f"mail {name}", "mail", payload={"to": name}, label=f"mail-{name}{self.text}"[:150])
        drain(self.app)

    def _dead(self) -> None:
        for number in range(5):
            self._put(
                f"invoice {number}", "invoice", payload={"number": 4000 + number}, label=f"invoice-{4000 + number}"
            )
        self._put(
            "charge",
            "charge",
            payload={"card": "4111-1111", "token": "s3cr3t-value-here"},
            tags=["money", f"t{self.text}"],
        )
        drain(self.app)

    def _command(self) -> None:
        """A command that failed, with its log."""
        store, env = self.app.store, {"PATH": os.environ["PATH"], "API_TOKEN": "s3cr3t-value-here"}
        command = Command(argv=("make", f"all{self.text}"), cwd="/srv/build", env=env)
        request = NewJob(
            kind=COMMAND, queue="builds", payload=command.dumps(),
            label=f"build{self.text}"[:150], max_attempts=1, actor="ada",
        )  # fmt: skip
        self.jobs["build"] = store.jobs.enqueue(request).id
        worker = _worker(store, "builder-1", kinds=[COMMAND], queues=["builds"])
        (lease,) = claim_jobs(store, worker, queues=["builds"], kinds=[COMMAND], limit=1, started=True)
        path = log_path(log_folder(self.app.url), lease.job_id, lease.token, {})
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(LOG.format(text=self.text), encoding="utf-8", errors="replace")
        store.leases.settle(lease, Failed(error=f"exit 2{self.text}", reason="exit_2", exit_code=2))

    def _waiting(self) -> None:
        first = self._put("fetch", "slow", label="fetch", delay="1h")
        second = self._put("parse", "slow", label=f"parse{self.text}"[:150], after=[first])
        self._put("publish", "mail", payload={"to": "all"}, label="publish", after=[second])
        held = self._put("held", "mail", payload={"to": "nobody"}, label="held-back")
        self.actions.jobs.perform("hold", Selector(ids=(held,)), note=f"not before Monday{self.text}")

    def _batch(self) -> None:
        done = self.app.run(self.resync.bind(replace=True), range(1, 41), output="none", max_failures=0)
        assert done.batch is not None
        self.batches["partial"] = done.batch.id
        paused = self.app.submit(self.resync.bind(replace=False), range(100))
        self.batches["paused"] = paused.id
        self.actions.batches.perform("pause", paused.id)

    def _running(self) -> None:
        store = self.app.store
        self._put("report", "slow", label=f"report{self.text}"[:150], queue="reports")
        worker = _worker(store, "worker-1", kinds=["mail", "slow", "invoice"], queues=["default", "reports"])
        (lease,) = claim_jobs(store, worker, queues=["reports"], kinds=["slow"], limit=1, started=True)
        store.leases.report(lease, done=420, total=1000, message=f"page 42 of 100{self.text}")
        for number in range(3):
            self._put(
                f"ready {number}", "orphan", label=f"import-{number}", queue="imports", payload={"note": self.text}
            )

    def _switches(self) -> None:
        self.actions.queues.perform("set", "reports", limit=4)
        self.actions.queues.perform("pause", "imports", note=f"the source is down{self.text}")
        self.app.store.autoscaler.record_decisions(
            WorkerId("builder-1"),
            "host-1",
            [
                AutoscalerDecision(
                    queue="builds",
                    action=AutoscalerAction.STEP_UP,
                    job_id=None,
                    slots=3,
                    text=f"the host has room{self.text}",
                )
            ],
        )
        self.app.store.saved_filters.save(f"dead money{self.text}"[:150].strip(), "state=dead kind=charge", actor="ada")


def _worker(store: Store, name: str, *, kinds: list[str], queues: list[str]) -> WorkerId:
    """Announce a worker to the store."""
    worker = WorkerId(name)
    store.workers.announce(worker, host="host-1", pid=4711, queues=queues, kinds=kinds, version="2026.11", slots=8)
    return worker


def _seen(text: str) -> str:
    """The printable characters, which the name of a schedule may have."""
    return "".join(character for character in text if character.isprintable()).rstrip()


def _kinds(app: Holdfast, text: str) -> tuple[dict[str, Any], Any]:
    @app.job()
    def mail(to: str) -> dict[str, str]:
        return {"sent": to}

    @app.job(max_attempts=1)
    def invoice(number: int) -> None:
        message = f"customer {number} has no address{text}"
        raise LookupError(message)

    @app.job(max_attempts=1, secrets=["card"])
    def charge(card: str, token: str) -> None:
        message = f"the bank said no to card {card}{text}"
        raise RuntimeError(message)

    @app.job()
    def slow() -> None: ...

    @app.job()
    def orphan(note: str = "") -> None: ...

    @app.unit()
    def resync(key: int, *, replace: bool = False, unit: holdfast.Unit) -> None:
        if key % 10 == 3:
            message = f"message {key} cannot be read{text}"
            raise ValueError(message)
        if key % 10 == 7:
            raise holdfast.Skip(f"empty{text}")
        unit.done("replaced" if replace else "new")

    return {handler.kind.name: handler for handler in (mail, invoice, charge, slow, orphan)}, resync
