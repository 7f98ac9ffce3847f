"""Pings: calls of a URL after a scheduled job is done, so that a monitor notices when they stop."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from holdfast.domain.jobs.context import Fail, Retry
from holdfast.domain.jobs.job import PING, PING_SECRETS
from holdfast.domain.jobs.json_values import to_json
from holdfast.domain.jobs.kind import Kind
from holdfast.domain.jobs.kind_options import KindOptions
from holdfast.domain.jobs.new_job import Actor, NewJob

MAX_ATTEMPTS = 5
TIMEOUT_S = 10.0


def ping_request(url: str, queue: str, label: str) -> NewJob:
    """Return the job that calls *url*, for the queue of the job that it follows."""
    payload = to_json({"url": url}, label="the URL").decode()
    return NewJob(
        kind=PING, payload=payload, queue=queue, label=label, max_attempts=MAX_ATTEMPTS, actor=Actor.SCHEDULER
    )


def ping_kind(hosts: Sequence[str]) -> Kind:
    """Return the kind that calls URLs of *hosts* only: a schedule must not reach into the internal network."""
    allowed = {host.lower() for host in hosts}

    def ping(url: str) -> int:
        host = urlsplit(url).hostname
        if (host or "") not in allowed:
            raise Fail(f"{host} may not be called: it is not among ping_hosts (HOLDFAST_PING_HOSTS) of this worker")
        return call(url)

    return Kind(PING, ping, KindOptions(secrets=PING_SECRETS))


def call(url: str) -> int:
    """Call *url* and return its status. Redirects are not followed, and the body is not read."""
    import http.client  # every worker has this kind, and few plans have pings

    parts = urlsplit(url)
    assert parts.hostname is not None
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_S)
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
