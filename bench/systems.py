"""The systems of the comparison on PostgreSQL."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from bench.peers import BENCH, Environment, PeerMissing, Process

HOLDFAST, RAW, HUEY = "Holdfast", "raw SQL", "huey"
OBAN = Environment(name="bench-oban", python=(3, 12))


@dataclass(frozen=True, kw_only=True)
class System:
    """A system: its racer, the environment of the racer, and its share of the jobs.

    A slow system does fewer jobs: it would take most of the time.
    """

    name: str
    racer: str
    environment: Environment | None = None
    share: float = 1.0

    @property
    def database(self) -> str:
        return self.name.lower().replace(" ", "_").replace("-", "_")

    def start(self, url: str, *settings: str) -> Process:
        """A racer that has started, and whose tables exist."""
        program = self.environment.program() if self.environment else sys.executable
        process = Process(self.racer, url, *settings, program=program)
        process.perform("bulk")
        return process


OURS = System(name=HOLDFAST, racer="bench.racer_holdfast")
SYSTEMS = (
    OURS,
    System(name="PgQueuer", racer="bench.racer_pgqueuer", environment=BENCH),
    System(name="Procrastinate", racer="bench.racer_procrastinate", environment=BENCH, share=0.01),
    System(name="oban-py", racer="bench.racer_oban", environment=OBAN, share=0.05),
    System(name="Awa", racer="bench.racer_awa", environment=BENCH, share=0.1),
)


def present() -> tuple[list[System], list[str]]:
    """The systems that this machine can run, and a line for each of the others."""
    found, missing = list[System](), list[str]()
    for system in SYSTEMS:
        try:
            if system.environment:
                system.environment.program()
            found.append(system)
        except PeerMissing as reason:
            missing.append(f"{system.name} is left out: {reason}")
    return found, missing
