"""What is shown of jobs and logs holds no secret, however one asks."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs

from holdfast.admin.views.batches import batch_secrets, batch_view, unit_view
from holdfast.admin.views.jobs import job_detail, job_view, list_views
from holdfast.admin.views.logs import find_log, mask_lines, read_log, search_log
from holdfast.admin.views.masking import Masks, schema_of
from holdfast.admin.views.schedules import schedule_view
from holdfast.domain.jobs.kind import Kind, KindOptions
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.domain.schedules.decision import spec_of
from holdfast.domain.schedules.definition import Definition
from holdfast.worker.schedules.ping import ping_request
from tests.store.batches import test_batches as batches
from tests.support.jobs import put, take_one

SECRET = "hunter22-and-more"


@pytest.fixture
def masks(store):
    store.kinds.publish([Kind("pay", lambda iban, to: None, KindOptions(secrets=("iban",))).published()])
    return Masks(store)


def test_payload_error_and_events_are_masked(store, masks):
    payload = {"iban": SECRET, "to": 7}
    job_id = put(store, "pay", payload=msgspec.json.encode(payload).decode())
    lease = take_one(store, kinds=("pay",))
    store.leases.settle(lease, Failed(error=f"cannot pay {SECRET}", permanent=True))
    told = job_detail(store.dashboard.job_record(job_id), masks)
    assert told.job["payload"] == {"iban": "***", "to": 7}
    assert told.job["error"] == "cannot pay ***"
    assert SECRET not in msgspec.json.encode(told).decode()
    assert SECRET in msgspec.json.encode(job_view(store.views.get(job_id))).decode()


@pytest.mark.one_backend
def test_a_label_and_a_key_are_shown_without_what_looks_like_a_secret(store):
    job = store.views.get(put(store))
    for said, shown in (("nightly", "nightly"), ("x?api_key=abc", "x?api_key=***")):
        told = job_view(msgspec.structs.replace(job, label=said, key=said))
        assert (told["label"], told["key"]) == (shown, shown)


@pytest.mark.parametrize("size", range(4, len(SECRET)))
@pytest.mark.one_backend
def test_a_list_shows_no_half_of_a_secret(store, masks, size):
    """Lists cut errors, wherever a secret may be."""
    put(store, "pay", payload=msgspec.json.encode({"iban": SECRET, "to": 7}).decode())
    error = "x" * (300 - size) + SECRET + " is wrong"
    store.leases.settle(take_one(store, kinds=("pay",)), Failed(error=error, permanent=True))
    (job,) = store.views.page(Selector(), brief=True).jobs
    assert job_view(job, masks, brief=True)["error"] == "x" * (300 - size) + "***"


def test_the_payload_of_a_schedule_is_masked(store, masks):
    definition = Definition(kind="pay", when=spec_of("@daily"), payload={"iban": SECRET, "token": SECRET, "to": 7})
    schedule = store.schedules.create("s", definition, actor="ada")
    facts = schedule_view(schedule, store.schedules.now(), secrets=masks.of_schedule(schedule))
    assert facts.definition["payload"] == {"iban": "***", "token": "***", "to": 7}


@pytest.mark.one_backend
def test_what_a_schedule_pings_and_why_it_is_paused_are_masked(store):
    ping = f"https://checks.example.com/nightly?key={SECRET}&{SECRET}"
    store.schedules.create("s", Definition(kind="pay", when=spec_of("@daily"), ping=ping), actor="ada")
    store.schedules.pause("s", note=f"until token={SECRET} is new", actor="ada")
    facts = schedule_view(store.schedules.get("s"), store.schedules.now())
    assert facts.definition["ping"] == "https://checks.example.com/nightly?key=***&***"
    assert facts.note == "until token=*** is new"


def test_what_a_handler_says_and_returns_is_masked(store, masks):
    """Its progress in a list too, which has no payloads; its result and its checkpoint."""
    payload = msgspec.json.encode({"iban": SECRET, "to": 7}).decode()
    job_id = put(store, "pay", payload=payload)
    lease = take_one(store, kinds=("pay",))
    store.leases.report(lease, done=1, total=2, message=f"using {SECRET}", checkpoint=f'{{"at":"{SECRET}!"}}')
    brief = store.views.page(Selector(), brief=True).jobs
    assert [each["progress_message"] for each in list_views(brief, masks, store)] == ["using ***"]
    assert job_detail(store.dashboard.job_record(job_id), masks).job["checkpoint"] == {"at": "***!"}
    store.leases.settle(lease, Done(f'["{SECRET} is fine"]'))
    assert SECRET not in msgspec.json.encode(job_detail(store.dashboard.job_record(job_id), masks)).decode()


@pytest.mark.one_backend
def test_the_label_of_a_unit_is_masked(store):
    """In the ledger and in the counters, where two may become one."""
    run = batches.begin(store)
    batches.finish(store, run, 1, label=f"by {SECRET}")
    batches.finish(store, run, 2, label="by ***")
    batch = structs.replace(run.batch, arguments=f'{{"api_key":"{SECRET}"}}')
    facts = batch_view(batch, store.ledger.statuses([batch.id])[batch.id])
    assert facts.summary.labels == {"by ***": 2}
    told = [unit_view(unit, batch_secrets(batch)).label for unit in store.ledger.page(batch.id).units]
    assert told == ["by ***"] * 2


def test_no_default_of_a_secret_parameter_is_told():
    def pay(iban: str = SECRET, to: int = 7) -> None:
        """A handler."""

    kind = Kind("pay", pay, KindOptions(secrets=("iban",))).published()
    assert SECRET not in schema_of(kind, ("iban",))
    assert '"default":7' in schema_of(kind, ("iban",))


@pytest.mark.one_backend
def test_the_address_of_a_ping_is_masked(store, masks):
    """Whoever knows it can report that all is well."""
    job_id = store.jobs.enqueue(ping_request(f"https://hc.example/{SECRET}", "default", "nightly")).id
    assert job_detail(store.dashboard.job_record(job_id), masks).job["payload"] == {"url": "***"}


def test_no_cut_of_a_log_shows_half_a_secret(tmp_path):
    """Whatever range is asked for, it begins and ends with whole lines."""
    log = tmp_path / "1-1.log"
    log.write_text(f"one\nthe key is {SECRET} indeed\nlast\n")
    halves = [SECRET[:8], SECRET[-8:]]
    for begin in range(log.stat().st_size + 2):
        for window in (5, 20, 40, 4096):
            part = read_log(log, [SECRET], begin=begin, window=window)
            assert not any(half in line for line in part.lines for half in halves), (begin, window, part)


def test_a_log_is_read_to_its_end_in_parts(tmp_path):
    """Each part goes on where the one before ended; no line is lost, and none comes twice."""
    log = tmp_path / "1-1.log"
    lines = [f"line {n} " + "x" * n for n in range(50)]
    log.write_text("\n".join(lines) + "\n")
    found, part = [], read_log(log, [], begin=0, window=100)
    while part.end < part.size:
        found += part.lines
        part = read_log(log, [], begin=part.end, window=100)
    assert found + part.lines == lines
    assert read_log(log, [], window=120).lines == lines[-2:]


def test_a_line_longer_than_a_part_is_passed_over(tmp_path):
    log = tmp_path / "1-1.log"
    log.write_text("first\n" + "x" * 1000 + "\nlast\n")
    found, part = [], read_log(log, [], begin=0, window=64)
    while part.end < part.size:
        found += part.lines
        part = read_log(log, [], begin=part.end, window=64)
    assert found + part.lines == ["first", "last"]


def test_an_unfinished_line_is_shown_when_the_program_has_ended(tmp_path):
    log = tmp_path / "1-1.log"
    log.write_text("whole\nhalf")
    assert read_log(log, []).lines == ["whole"]
    assert read_log(log, [], finished=True).lines == ["whole", "half"]
    assert read_log(log, [], begin=99).lines == []


def test_a_search_does_not_find_secrets(tmp_path):
    """Nobody can guess one letter by letter; matches come with their numbers, the last ones."""
    log = tmp_path / "1-1.log"
    log.write_text(f"a\nkey {SECRET}\nb KEY\n")
    assert search_log(log, [SECRET], "hunter") == []
    assert search_log(log, [SECRET], "key") == [(2, "key ***"), (3, "b KEY")]
    assert search_log(log, [SECRET], "key", limit=1) == [(3, "b KEY")]


def test_a_secret_of_several_lines_is_masked():
    key = "-----BEGIN-----\nabcdef\n-----END-----"
    assert mask_lines(f"x\n{key}\ny", [key]) == "x\n***\n***\n***\ny"


def test_a_log_is_found_for_programs_alone(store, tmp_path):
    from holdfast.errors import InvalidInput, NotFound

    job = store.views.get(put(store))
    with pytest.raises(InvalidInput, match="is no program"):
        find_log(tmp_path, job, 1)
    program = store.views.get(put(store, "command", payload='{"argv": ["true"], "cwd": "/"}'))
    with pytest.raises(NotFound):
        find_log(tmp_path, program, 1)
