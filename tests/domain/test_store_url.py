"""URLs of stores."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from holdfast.domain.store_url import SqliteUrl, anchored, sqlite_url, without_driver, without_password
from holdfast.errors import ConfigurationError


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///jobs.db", "jobs.db"),
        ("sqlite:////srv/jobs.db", "/srv/jobs.db"),
        ("sqlite:jobs.db", "jobs.db"),
        ("sqlite:/srv/jobs.db", "/srv/jobs.db"),
        ("sqlite:///~/jobs.db", "~/jobs.db"),
        ("sqlite:///a%3Fb%23c%25d.db", "a?b#c%d.db"),
        ("sqlite:///a b/ü.db", "a b/ü.db"),
    ],
)
def test_every_spelling_names_its_file(url, path):
    """K82."""
    assert SqliteUrl.parse(url) == SqliteUrl(path, {})
    assert SqliteUrl.parse(f"{url}?durability=fast") == SqliteUrl(path, {"durability": "fast"})
    assert SqliteUrl.parse(sqlite_url(path)).path == path


@pytest.mark.parametrize(
    "url", ["sqlite:", "sqlite:///", "sqlite://host/a.db", "sqlite:///a?.db", "sqlite:///a#b", "sqlite:///a/"]
)
def test_a_url_that_names_no_file_is_refused(url):
    """K82: a question mark in a path never selects another file."""
    with pytest.raises(ConfigurationError, match="names no file") as caught:
        SqliteUrl.parse(url)
    assert "%3F" in caught.value.hint


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///jobs.db", "sqlite:////srv/a%3Fb/jobs.db"),
        ("sqlite:///../jobs.db?durability=fast", "sqlite:////srv/a%3Fb/../jobs.db?durability=fast"),
        ("sqlite:////abs.db", "sqlite:////abs.db"),
        ("sqlite:///~/jobs.db", "sqlite:///~/jobs.db"),
        ("postgresql://host/db", "postgresql://host/db"),
    ],
)
def test_a_relative_path_begins_in_a_folder(url, expected):
    """K77."""
    assert anchored(url, PurePosixPath("/srv/a?b")) == expected


@pytest.mark.parametrize(
    ("url", "without"),
    [
        ("postgresql://ada:s3cret@db:5432/jobs", "postgresql://ada@db:5432/jobs"),
        ("postgresql://ada:a%40b?c@db/jobs?schema=x", "postgresql://ada@db/jobs?schema=x"),
        ("postgresql://:s3cret@db/jobs", "postgresql://@db/jobs"),
        ("postgresql:///jobs?host=/tmp&password=s3cret&user=ada", "postgresql:///jobs?host=/tmp&user=ada"),
        ("postgresql:///jobs?password=s3cret", "postgresql:///jobs"),
        ("postgresql:///jobs?user=a&sslpassword=s3cret", "postgresql:///jobs?user=a"),
        ("postgresql://db:5432/jobs?application_name=a:b@c", "postgresql://db:5432/jobs?application_name=a:b@c"),
        ("postgresql+psycopg://ada:s3cret@db/jobs", "postgresql://ada@db/jobs"),
        ("sqlite:////srv/jobs.db", "sqlite:////srv/jobs.db"),
    ],
)
def test_a_url_without_its_password_names_the_same_store(url, without):
    """E5.3."""
    assert without_password(url) == without


@pytest.mark.parametrize(
    ("url", "without"),
    [
        ("postgresql+psycopg://ada@db/jobs", "postgresql://ada@db/jobs"),
        ("postgres+psycopg2://db/jobs?schema=x", "postgres://db/jobs?schema=x"),
        ("postgresql+asyncpg:///jobs", "postgresql:///jobs"),
        ("postgresql://a+b:c@db/jobs", "postgresql://a+b:c@db/jobs"),
        ("mysql+pymysql://db/jobs", "mysql+pymysql://db/jobs"),
        ("sqlite:////srv/postgresql+x:jobs.db", "sqlite:////srv/postgresql+x:jobs.db"),
    ],
)
def test_the_driver_of_a_url_is_left_out(url, without):
    """E8: people copy the URL of SQLAlchemy."""
    assert without_driver(url) == without
