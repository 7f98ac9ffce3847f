"""Views without secrets: payloads, errors, progress, labels, schedules and schemas."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs

from holdfast.admin.views.batches import BatchReader
from holdfast.admin.views.job_detail import job_detail, job_record
from holdfast.admin.views.jobs import decoded_job, job_page, masked_job
from holdfast.admin.views.payload_secrets import schema_of
from holdfast.admin.views.schedules import schedule_view
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.jobs.selector import Selector
from holdfast.domain.jobs.verdict import Done, Failed
from holdfast.domain.schedules.definition import Definition
from holdfast.worker.schedules.ping import ping_request
from tests.store.batches import test_batches as batches
from tests.support.jobs import put, take_one

SECRET = "hunter22-and-more"


@pytest.fixture
def declared(store):
    """A kind with a secret field."""
    store.kinds.publish([Kind("pay", lambda iban, to: None, KindOptions(secrets=("iban",))).published()])


def test_payload_error_and_events_are_masked(store, declared):
    payload = {"iban": SECRET, "to": 7}
    job_id = put(store, "pay", payload=msgspec.json.encode(payload).decode())
    lease = take_one(store, kinds=("pay",))
    store.leases.settle(lease, Failed(error=f"cannot pay {SECRET}", permanent=True))
    view = job_detail(job_record(store, job_id))
    assert view.job["payload"] == {"iban": "***", "to": 7}
    assert view.job["error"] == "cannot pay ***"
    assert SECRET not in msgspec.json.encode(view).decode()
    assert SECRET in store.views.get(job_id).payload


@pytest.mark.one_backend
def test_labels_and_keys_are_masked(store):
    job = store.views.get(put(store))
    for text, shown in (("nightly", "nightly"), ("x?api_key=abc", "x?api_key=***")):
        masked = masked_job(structs.replace(job, label=text, key=text), store)
        assert (masked.label, masked.key) == (shown, shown)


@pytest.mark.parametrize("size", range(4, len(SECRET)))
@pytest.mark.one_backend
def test_a_list_shows_no_half_of_a_secret(store, declared, size):
    """Lists cut errors at any position in a secret."""
    put(store, "pay", payload=msgspec.json.encode({"iban": SECRET, "to": 7}).decode())
    error = "x" * (300 - size) + SECRET + " is wrong"
    store.leases.settle(take_one(store, kinds=("pay",)), Failed(error=error, permanent=True))
    (job,) = job_page(store, Selector()).jobs
    assert decoded_job(job, brief=True)["error"] == "x" * (300 - size) + "***"


def test_the_payload_of_a_schedule_is_masked(store, declared):
    definition = Definition(kind="pay", cron="@daily", payload={"iban": SECRET, "token": SECRET, "to": 7})
    store.schedules.create("s", definition, actor="ada")
    assert schedule_view(store, "s").definition["payload"] == {"iban": "***", "token": "***", "to": 7}


@pytest.mark.one_backend
def test_the_ping_and_the_note_of_a_schedule_are_masked(store):
    ping = f"https://checks.example.com/nightly?key={SECRET}&{SECRET}"
    store.schedules.create("s", Definition(kind="pay", cron="@daily", ping=ping), actor="ada")
    store.schedules.pause("s", note=f"until token={SECRET} is new", actor="ada")
    view = schedule_view(store, "s")
    assert view.definition["ping"] == "https://checks.example.com/***"
    assert view.note == "until token=*** is new"


def test_progress_and_results_are_masked(store, declared):
    """Progress also in a list, which has no payloads; the result and the checkpoint."""
    payload = msgspec.json.encode({"iban": SECRET, "to": 7}).decode()
    job_id = put(store, "pay", payload=payload)
    lease = take_one(store, kinds=("pay",))
    store.leases.report(lease, done=1, total=2, message=f"using {SECRET}", checkpoint=f'{{"at":"{SECRET}!"}}')
    assert [job.progress_message for job in job_page(store, Selector()).jobs] == ["using ***"]
    assert job_detail(job_record(store, job_id)).job["checkpoint"] == {"at": "***!"}
    store.leases.settle(lease, Done(f'["{SECRET} is fine"]'))
    assert SECRET not in msgspec.json.encode(job_record(store, job_id)).decode()


@pytest.mark.one_backend
def test_the_label_of_a_unit_is_masked(store):
    """In the ledger and in the counters, where two labels may become equal."""
    run = batches.begin(store, arguments=f'{{"api_key":"{SECRET}"}}')
    batches.finish(store, run, 1, label=f"by {SECRET}")
    batches.finish(store, run, 2, label="by ***")
    batch = BatchReader(store, run.batch.id)
    assert batch.view.summary.labels == {"by ***": 2}
    assert [unit.label for unit in batch.units().units] == ["by ***"] * 2


def test_defaults_of_secret_parameters_are_left_out():
    def pay(iban: str = SECRET, to: int = 7) -> None:
        """A handler."""

    kind = Kind("pay", pay, KindOptions(secrets=("iban",))).published()
    assert SECRET not in schema_of(kind, ("iban",))
    assert '"default":7' in schema_of(kind, ("iban",))


@pytest.mark.one_backend
def test_the_address_of_a_ping_is_masked(store, declared):
    """Anyone with the address can report success."""
    job_id = store.jobs.enqueue(ping_request(f"https://hc.example/{SECRET}", "default", "nightly")).id
    assert job_detail(job_record(store, job_id)).job["payload"] == {"url": "***"}
