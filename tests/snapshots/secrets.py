"""A store in which every text that can hold a secret holds one of its own."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

#: Texts of a job: they contain secrets of its payload.
JOB_TEXTS = (
    *("holdfast_job.label", "holdfast_job.tags", "holdfast_job.key", "holdfast_live.note", "holdfast_live.refusals"),
    *("holdfast_finished.error", "holdfast_finished.result", "holdfast_attempt.error", "holdfast_event.detail"),
    *("holdfast_progress.message", "holdfast_progress.checkpoint", "holdfast_step.name", "holdfast_step.result"),
    *("holdfast_key.key", "holdfast_trace.context", "log", "traceback", "result key", "checkpoint key", "audit note"),
)
#: Texts of a batch: they contain secrets of its arguments.
BATCH_TEXTS = (
    *("holdfast_batch.name", "holdfast_batch.failures", "holdfast_unit.key", "holdfast_unit.label"),
    *("holdfast_unit.warning", "holdfast_unit.error", "holdfast_unit.data", "holdfast_unit_count.name"),
    *("holdfast_inbox.key", "holdfast_inbox.data", "holdfast_in_flight.units", "holdfast_unit.earlier_errors"),
    "holdfast_batch_event.detail",
)
#: Secrets by the name of their field, by declaration, and by how they are written.
PLAIN_TEXTS = (
    *("payload field", "declared field", "payload text", "payload url", "default of a field"),
    *("env", "argv --password", "argv --token=", "argv -p", "argv -u", "argv sh -c"),
    *("holdfast_batch.arguments", "holdfast_batch.source", "holdfast_in_flight.owner", "schedule payload", "ping"),
    *("holdfast_schedule.note", "holdfast_schedule.error", "holdfast_queue.note", "holdfast_stop_switch.note"),
    *("holdfast_audit_entry.target", "holdfast_audit_entry.note", "holdfast_autoscaler_decision.text"),
    "holdfast_saved_filter.filter",
)
SECRETS = {
    name: f"ZQ{number:02d}-{re.sub('[^a-z]', '', name)}"
    for number, name in enumerate((*JOB_TEXTS, *BATCH_TEXTS, *PLAIN_TEXTS))
}
#: A secret, or its beginning: texts are cut to the width of a terminal.
LEAK = re.compile(r"ZQ\d\d[\w-]*")
#: Columns of text that hold none: names, states, identities, and values that never leave the store.
HARMLESS = {
    "holdfast_meta": {"installation", "checksums", "objects", "successor"},
    "holdfast_kind": {"name"},
    "holdfast_secret_field": {"kind", "name"},
    "holdfast_queue": {"name"},
    "holdfast_stop_switch": {"mode", "actor"},
    "holdfast_worker": {"id", "host", "version", "queues", "kinds", "build", "names", "autoscaler", "requested", "process"},
    "holdfast_memory_profile": {"name"},
    "holdfast_autoscaler_decision": {"queue", "host", "worker", "action"},
    "holdfast_job": {"kind", "actor", "on_lost", "retry", "after_when", "after_failed", "plan", "db_user"},
    "holdfast_job_tag": {"tag"},  # a trigger copies those of holdfast_job, which have one
    "holdfast_live": {"state", "queue", "kind", "requested", "worker", "reader"},
    "holdfast_finished": {"state", "queue", "kind", "worker", "reason"},
    "holdfast_key": {"kind", "scope"},
    "holdfast_attempt": {"worker", "reason"},
    "holdfast_event": {"name", "actor"},
    "holdfast_batch": {"identity", "kind", "state", "requested", "aborted_by", "version", "inputs", "code", "origin", "options", "actor"},
    "holdfast_batch_event": {"name", "actor"},
    "holdfast_unit": {"state", "worker"},
    "holdfast_inbox": {"inbox"},
    "holdfast_schedule": {"name", "declared", "application", "provider", "actor"},
    "holdfast_plan": {"schedule", "scope", "origin", "actor"},
    "holdfast_skipped_plan": {"schedule", "scope", "reason"},
    "holdfast_audit_entry": {"actor", "via", "action", "os_user", "db_user"},
    "holdfast_credential": {"prefix", "name", "role", "hash", "actor", "inbox"},
    "holdfast_batch_tally": {"result"},
    "holdfast_secret": {"name", "value"},
    "holdfast_session": {"hash", "name", "role", "prefix"},
    "holdfast_saved_filter": {"name", "actor"},
    "holdfast_idempotency_key": {"credential", "key", "digest", "body"},
}  # fmt: skip
#: Columns that hold JSON: their secrets are inside, see the functions below.
STRUCTURED = {
    "holdfast_kind": {"options", "payload_schema"},
    "holdfast_job": {"payload"},
    "holdfast_schedule": {"definition"},
}


def hide(home: Path) -> None:
    """Put the secrets into the store of a home folder, and into its logs."""
    with closing(sqlite3.connect(home / "jobs.db", isolation_level=None)) as connection, connection:
        _hide_in_jobs(connection)
        _hide_in_batches(connection)
        _hide_elsewhere(connection)
    connection.close()
    for log in (home / "jobs.db-logs").iterdir():
        log.write_text(f"{log.read_text()}connecting with {SECRETS['log']}\nmysql -p{SECRETS['argv -p']}\n")


def text_columns(home: Path) -> set[tuple[str, str]]:
    """All columns of text in the store's tables."""
    with closing(sqlite3.connect(home / "jobs.db")) as connection, connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {
            (table, column[1])
            for table in tables
            for column in connection.execute(f"PRAGMA table_info({table})")
            if column[2] == "TEXT"
        }


def _hide_in_jobs(connection: sqlite3.Connection) -> None:
    published = {row[0] for row in connection.execute("SELECT name FROM holdfast_kind")}
    for job_id, kind, payload in connection.execute("SELECT id, kind, payload FROM holdfast_job").fetchall():
        changed = _command(payload) if kind == "command" else _payload(payload)
        if kind in published:
            changed["declared"] = SECRETS["declared field"]
        connection.execute("UPDATE holdfast_job SET payload = ? WHERE id = ?", (json.dumps(changed), job_id))
    texts = {name: SECRETS[name] for name in JOB_TEXTS}
    connection.execute(
        "UPDATE holdfast_job SET label = coalesce(label || ' ', '') || ?, tags = ?",
        (texts["holdfast_job.label"], json.dumps(["tag", texts["holdfast_job.tags"]])),
    )
    for table in ("holdfast_job", "holdfast_key"):
        connection.execute(f"UPDATE {table} SET key = key || ' ' || ?", (texts["holdfast_job.key"],))
    pruned = ("mail", texts["holdfast_key.key"], 999, "forever")
    connection.execute("INSERT INTO holdfast_key (kind, key, job_id, scope) VALUES (?, ?, ?, ?)", pruned)
    connection.execute("UPDATE holdfast_live SET note = ?", (f"see {texts['holdfast_live.note']}",))
    refusal = {"build": "b", "version": 1, "worker": "w", "error": f"no field {texts['holdfast_live.refusals']}"}
    connection.execute("UPDATE holdfast_live SET refusals = ?, reader = 'b' WHERE id > 30", (json.dumps([refusal]),))
    result = {texts["result key"]: texts["holdfast_finished.result"], "rows": 12}
    error = f'KeyError: {texts["holdfast_finished.error"]}\n\n  File "x.py", line 1, in pay\n    {texts["traceback"]}'
    connection.execute("UPDATE holdfast_finished SET error = ? WHERE state = 'dead'", (error,))
    connection.execute("UPDATE holdfast_finished SET result = ? WHERE state = 'done'", (json.dumps(result),))
    connection.execute("UPDATE holdfast_attempt SET error = ?", (f"OSError: {texts['holdfast_attempt.error']}",))
    connection.execute("UPDATE holdfast_event SET detail = ?", (json.dumps(texts["holdfast_event.detail"]),))
    checkpoint = {texts["checkpoint key"]: texts["holdfast_progress.checkpoint"]}
    connection.execute(
        "INSERT OR REPLACE INTO holdfast_progress (job_id, done, total, message, checkpoint, at)"
        " SELECT id, 3, 9, ?, ?, 0 FROM holdfast_job",
        (f"at {texts['holdfast_progress.message']}", json.dumps(checkpoint)),
    )
    connection.execute(
        "INSERT INTO holdfast_step (job_id, name, result) SELECT id, ?, ? FROM holdfast_job",
        (texts["holdfast_step.name"], json.dumps(texts["holdfast_step.result"])),
    )
    connection.execute(
        "INSERT INTO holdfast_trace (job_id, context) SELECT id, ? FROM holdfast_job",
        (texts["holdfast_trace.context"],),
    )


def _payload(payload: str) -> dict[str, object]:
    return {
        **json.loads(payload),
        "password": SECRETS["payload field"],
        "text": f"password={SECRETS['payload text']}",
        "url": f"ftp://ada:{SECRETS['payload url']}@host/x",
        "vault": {"tokens": [SECRETS[name] for name in JOB_TEXTS]},
    }


def _command(payload: str) -> dict[str, object]:
    command = json.loads(payload)
    hidden = {f"TOKEN_{number}": SECRETS[name] for number, name in enumerate(JOB_TEXTS)}
    words = ["--password", SECRETS["argv --password"], f"--token={SECRETS['argv --token=']}"]
    words += [f"-p{SECRETS['argv -p']}", "-u", f"ada:{SECRETS['argv -u']}", f"mysql -p{SECRETS['argv sh -c']} shop"]
    env = {**command.get("env", {}), "RATES": SECRETS["env"], **hidden}
    return {**command, "argv": [*command["argv"], *words], "env": env}


def _hide_in_batches(connection: sqlite3.Connection) -> None:
    texts = {name: SECRETS[name] for name in BATCH_TEXTS}
    arguments = {"password": SECRETS["holdfast_batch.arguments"], "vault": {"tokens": list(texts.values())}}
    failures = [{"count": 2, "error": f"at {texts['holdfast_batch.failures']}", "key": texts["holdfast_unit.key"]}]
    source = f"password={SECRETS['holdfast_batch.source']}"
    connection.execute(
        "UPDATE holdfast_batch SET arguments = ?, name = CASE WHEN id < 3 THEN ? END, failures = ?,"
        " source = CASE WHEN id > 3 THEN ? ELSE source END",
        (json.dumps(arguments), texts["holdfast_batch.name"], json.dumps(failures), source),
    )
    connection.execute(
        "UPDATE holdfast_unit SET key = json_quote(key || ' ' || ?), label = ?, warning = ?, data = ?,"
        " error = CASE WHEN error IS NOT NULL THEN ? END",
        (
            texts["holdfast_unit.key"],
            texts["holdfast_unit.label"],
            f"see {texts['holdfast_unit.warning']}",
            json.dumps({texts["holdfast_unit.data"]: [texts["holdfast_unit.data"]]}),
            f"ValueError: {texts['holdfast_unit.error']}",
        ),
    )
    connection.execute(
        "UPDATE holdfast_unit SET earlier_errors = ?",
        (json.dumps([f"OSError: {texts['holdfast_unit.earlier_errors']}"]),),
    )
    stopped = [{"count": 1, "error": f"at {texts['holdfast_batch_event.detail']}", "key": "1"}]
    connection.execute(
        "UPDATE holdfast_batch_event SET detail = json_set(coalesce(detail, '{}'), '$.failures', json(?))",
        (json.dumps(stopped),),
    )
    connection.execute(
        "UPDATE holdfast_unit_count SET name = 'label:' || ? WHERE name LIKE 'label:%'",
        (texts["holdfast_unit_count.name"],),
    )
    connection.execute(
        "UPDATE holdfast_inbox SET key = json_quote(key || ?), data = ?",
        (texts["holdfast_inbox.key"], json.dumps({texts["holdfast_inbox.data"]: texts["holdfast_inbox.data"]})),
    )
    owner = f"holdfast batch run shop:resync --set token={SECRETS['holdfast_in_flight.owner']}"
    connection.execute("UPDATE holdfast_in_flight SET owner = json_set(owner, '$.command', ?)", (owner,))


def _hide_elsewhere(connection: sqlite3.Connection) -> None:
    connection.execute(
        "UPDATE holdfast_kind SET options = json_insert(options, '$.secrets[#]', 'declared'), payload_schema = ?",
        (json.dumps({"properties": {"declared": {"type": "string", "default": SECRETS["default of a field"]}}}),),
    )
    payload = {"password": SECRETS["schedule payload"], "declared": SECRETS["declared field"]}
    connection.execute(
        "UPDATE holdfast_schedule SET definition = json_set(definition, '$.payload', json(?), '$.ping', ?),"
        " note = ?, error = ?, failures = 1",
        (
            json.dumps({**payload, "vault": {"tokens": [SECRETS["holdfast_schedule.note"]]}}),
            f"https://pings.example/{SECRETS['ping']}",
            f"see {SECRETS['holdfast_schedule.note']}",
            f"ValueError: {SECRETS['holdfast_schedule.note']} password={SECRETS['holdfast_schedule.error']}",
        ),
    )
    stop = f"password={SECRETS['holdfast_stop_switch.note']}"
    connection.execute(
        "INSERT INTO holdfast_stop_switch (mode, actor, note, at) VALUES ('drain', 'ada', ?, 0)", (stop,)
    )
    for column in ("holdfast_queue.note", "holdfast_autoscaler_decision.text", "holdfast_saved_filter.filter"):
        table, name = column.split(".")
        connection.execute(f"UPDATE {table} SET {name} = ?", (f"label='password={SECRETS[column]}'",))
    notes = f"{SECRETS['audit note']} password={SECRETS['holdfast_audit_entry.note']}"
    connection.execute("UPDATE holdfast_audit_entry SET note = ? WHERE target LIKE 'id=%'", (notes,))
    connection.execute(
        "INSERT INTO holdfast_audit_entry (at, actor, via, action, target, note) VALUES (0, 'ada', 'cli', 'hold', ?, ?)",
        (
            f"label='password={SECRETS['holdfast_audit_entry.target']}'",
            f"password={SECRETS['holdfast_audit_entry.note']}",
        ),
    )
