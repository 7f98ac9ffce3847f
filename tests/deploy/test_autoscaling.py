"""What KEDA reads by the files of deploy/keda: a query of PostgreSQL, or a number of the HTTP API."""

from __future__ import annotations

import secrets
from urllib.parse import urlsplit

import psycopg
from starlette.testclient import TestClient

import holdfast
from holdfast.domain.access.roles import Role
from holdfast.web import asgi
from tests.support.deploy_files import containers, objects
from tests.support.jobs import put, take_one


def triggers(kind):
    return [
        trigger["metadata"]
        for document in objects("ScaledObject", "ScaledJob")
        for trigger in document["spec"]["triggers"]
        if trigger["type"] == kind
    ]


def test_every_query_answers_a_reader_with_a_number(postgres_database):
    """A ready and a running job of each queue."""
    store = postgres_database.open()
    store.database.tools.apply(store.database.tools.roles())
    queues = ("default", "render")
    for queue in queues:
        put(store, queue=queue)
        put(store, queue=queue)
        take_one(store, queues=(queue,))
    name = f"test_{secrets.token_hex(4)}"
    postgres_database.execute(f"CREATE ROLE {name} LOGIN IN ROLE holdfast_reader")
    try:
        with psycopg.connect(postgres_database.url, user=name) as connection:
            answers = [connection.execute(each["query"].encode()).fetchone() for each in triggers("postgresql")]
    finally:
        postgres_database.execute(f"DROP ROLE {name}")
    assert answers == [(2,)] * len(queues)


def test_the_address_of_the_api_answers_a_viewer_with_a_number(real_database):
    """On both backends, under the host name of the service."""
    (trigger,) = triggers("metrics-api")
    (hosts,) = [
        entry["value"]
        for container in containers()
        for entry in container["env"]
        if entry["name"] == "HOLDFAST_WEB_HOSTS"
    ]
    url = urlsplit(trigger["url"])
    with holdfast.Holdfast(real_database.url) as app:
        put(app.store)
        put(app.store)
        put(app.store, queue="other")
        put(app.store, hold=True)
        take_one(app.store)
        token = app.store.credentials.add("keda", Role.VIEWER, actor="ada")
        site = asgi(app, hosts=hosts.split(","))
        client = TestClient(site, base_url=f"{url.scheme}://{url.netloc}")
        answer = client.get(f"{url.path}?{url.query}", headers={"authorization": f"Bearer {token}"})
        site.close()
    value = answer.json()
    for name in trigger["valueLocation"].split("."):
        value = value[name]
    assert value == 2
