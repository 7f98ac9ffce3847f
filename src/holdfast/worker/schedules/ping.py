"""Pings: a URL is called when a scheduled job is done, so that somebody notices when it is not."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from urllib.parse import urlsplit

from holdfast.domain.jobs.handler_exceptions import Fail, Retry
from holdfast.domain.jobs.json_values import to_json
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.jobs.new_job import Actor, NewJob
from holdfast.domain.schedules.definition import PING, PING_SECRETS, may_ping

ATTEMPTS = 5
#: How many seconds a call may take.
TIMEOUT = 10.0


def ping_request(url: str, queue: str, label: str) -> NewJob:
    """The job that calls *url*; it serves the queue of the job that it follows."""
    payload = to_json({"url": url}, label="the URL").decode()
    return NewJob(kind=PING, payload=payload, queue=queue, label=label, max_attempts=ATTEMPTS, actor=Actor.SCHEDULER)


def ping_kind(hosts: Sequence[str]) -> Kind:
    """The kind that calls URLs of these *hosts*, and of no others: a schedule must not reach into the network."""

    def ping(url: str) -> int:
        if not may_ping(url, hosts):
            host = urlsplit(url).hostname
            raise Fail(f"{host} may not be called: it is not among ping_hosts (HOLDFAST_PING_HOSTS) of this worker")
        return call(url)

    return Kind(PING, ping, KindOptions(secrets=PING_SECRETS))


def call(url: str) -> int:
    """Call *url* and return its status; nothing is followed, and what it says is not read.

    Raises:
        Retry: It did not answer, or with an error.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=TIMEOUT)
    try:
        path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        connection.request("GET", path, headers={"User-Agent": "holdfast"})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise Retry(f"{parts.hostname} did not answer: {error}") from None
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise Retry(f"{parts.hostname} answered with status {status}")
    return status
