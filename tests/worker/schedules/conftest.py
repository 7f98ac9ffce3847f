"""Applications with a store on each backend."""

from __future__ import annotations

import pytest

import holdfast


@pytest.fixture
def app(database):
    with holdfast.Holdfast(database.url) as app:
        app.use(database.url, database.open())
        yield app


@pytest.fixture
def real_app(real_database):
    with holdfast.Holdfast(real_database.url) as app:
        yield app
