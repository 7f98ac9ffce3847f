"""A site on its own store, and clients with each role."""

from __future__ import annotations

import pytest
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

import holdfast
from holdfast.domain.access.roles import Role
from holdfast.web import asgi
from holdfast.web.server import Server

HOST = "http://localhost"


class Client(TestClient):
    """A program that calls the API with a token."""

    def __init__(self, site, token=None, **options):
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        super().__init__(site, base_url=HOST, headers=headers, follow_redirects=False, **options)

    def read(self, path, **query):
        answer = self.get(f"/api/v1{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def change(self, path, status=200, headers=None, **body):
        answer = self.post(f"/api/v1{path}", json=body, headers=headers or {})
        assert answer.status_code == status, answer.text
        return answer.json()["data"]


def all_routes(site):
    """Every path of the site with its methods and example ids."""
    for route in site._routes():
        if isinstance(route, Route):
            yield route.path.replace("{id:int}", "1"), route.methods
        else:
            assert isinstance(route, Mount)


@pytest.fixture
def app(real_database):
    with holdfast.Holdfast(real_database.url) as app:

        @app.job()
        def mail(to: int, subject: str = "hello") -> str:
            return f"{subject} {to}"

        @app.job(secrets=["iban"], max_attempts=1)
        def pay(iban: str) -> None:
            raise ValueError(f"cannot pay {iban}")

        assert app.store
        yield app


@pytest.fixture
def make_site(app):
    """Makes sites like an application that mounts them."""
    made = []

    def make(**options):
        made.append(asgi(app, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def site(make_site):
    return make_site()


@pytest.fixture
def make_server(app):
    """Makes servers that listen but do not serve."""
    made = []

    def make(address, **options):
        made.append(Server(app, address, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def tokens(app):
    """A token of each role."""
    return {role: app.store.credentials.add(str(role), role, actor="root") for role in Role}


@pytest.fixture
def admin(site, tokens):
    with Client(site, tokens[Role.ADMIN]) as client:
        yield client


@pytest.fixture
def viewer(site, tokens):
    return Client(site, tokens[Role.VIEWER])


@pytest.fixture
def operator(site, tokens):
    return Client(site, tokens[Role.OPERATOR])
