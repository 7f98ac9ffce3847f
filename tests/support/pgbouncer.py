"""PgBouncer, before a PostgreSQL of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.support.processes import wait_until

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
PORT = 6432


@contextmanager
def pgbouncer(server_url: str, *, mode: str = "transaction", size: int = 3) -> Iterator[str]:
    """The URL of a PgBouncer with *size* connections to the server, shared by all clients."""
    assert PROGRAM is not None
    server = conninfo_to_dict(server_url)
    home = Path(tempfile.mkdtemp(prefix="holdfast-bouncer-"))
    home.chmod(0o777)
    (home / "ini").write_text(
        f"[databases]\n* = host={server['host']} port={server.get('port', 5432)} user={server['user']}\n"
        f"[pgbouncer]\nunix_socket_dir = {home}\nlisten_addr =\nlisten_port = {PORT}\nauth_type = any\n"
        f"pool_mode = {mode}\ndefault_pool_size = {size}\nlogfile = {home}/log\npidfile = {home}/pid\n"
        "ignore_startup_parameters = options,extra_float_digits\n"
    )
    identity = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
    process = subprocess.Popen(
        [PROGRAM, str(home / "ini")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **identity
    )
    url = f"postgresql://{server['user']}@/{server['dbname']}?host={home}&port={PORT}"
    try:
        wait_until(lambda: _answers(url))
        yield url
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(home)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True
