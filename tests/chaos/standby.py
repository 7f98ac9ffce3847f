"""A PostgreSQL with a standby, which takes over when the first is gone: with all that was answered, or without the end."""

from __future__ import annotations

from tests.support.postgres import QUICK, PostgresServer, bundled_programs
from tests.support.processes import wait_until

SETTINGS = {**QUICK, "shared_buffers": "64MB", "wal_level": "replica", "max_wal_senders": "4", "hot_standby": "on"}


class Cluster:
    """One primary and one standby; :meth:`fail_over` loses the primary at once and promotes the standby."""

    def __init__(self, *, synchronous: bool = True) -> None:
        self._synchronous = synchronous
        self._primary = PostgresServer(bundled_programs(), settings=SETTINGS)
        self._primary.start()
        self._standby = self._follow()

    @property
    def url(self) -> str:
        """That of the primary of this moment."""
        return self._primary.url()

    def fall_behind(self) -> None:
        """Cut an asynchronous standby off: it lacks all commits from now on."""
        _ask(self._standby, "ALTER SYSTEM SET primary_conninfo = 'host=/nowhere'")
        _ask(self._standby, "SELECT pg_reload_conf()")
        wait_until(lambda: not _ask(self._primary, "SELECT 1 FROM pg_stat_replication"))

    def fail_over(self) -> None:
        """The primary is gone for good, at once; its standby is promoted."""
        self._primary.close()
        self._primary = self._standby
        self._primary.promote()
        if self._synchronous:
            self._wait_for_standbys("")

    def restore(self) -> None:
        """Give the primary a standby again, which must have everything that is answered from now on."""
        self._standby = self._follow()

    def close(self) -> None:
        self._standby.close()
        self._primary.close()

    def _follow(self) -> PostgresServer:
        standby = PostgresServer(bundled_programs(), settings=SETTINGS, copy_of=self._primary)
        standby.start()
        wait_until(lambda: _ask(self._primary, "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"))
        if self._synchronous:
            self._wait_for_standbys("*")
            wait_until(lambda: _ask(self._primary, "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"))
        return standby

    def _wait_for_standbys(self, names: str) -> None:
        """Nothing is answered before these have it too: what was answered survives the loss of the primary."""
        _ask(self._primary, f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        _ask(self._primary, "SELECT pg_reload_conf()")


def _ask(server: PostgresServer, query: str) -> list[object]:
    import psycopg

    with psycopg.connect(server.url(), autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []
