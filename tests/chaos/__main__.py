"""Run campaigns: ``python -m tests.chaos kills --backend sqlite --count 10000 --seed 7 --write``."""

from __future__ import annotations

import argparse
import os
import random
import sys

from tests.chaos import campaigns, figures, producers, soak
from tests.chaos.campaigns import Campaign, Outcome
from tests.chaos.situations import NEMESES
from tests.chaos.world import NEEDED
from tests.support.processes import preload

#: What ``all`` runs, and how many strikes of each are wanted on each backend for docs/guarantees-tests.md.
FULL = {
    "kills": 10_000,
    "batches": 10_000,
    "pauses": 2_000,
    "stopped": 500,
    "clocks": 1_000,
    "restarts": 100,
    "backends": 10_000,
    "answers": 2_000,
    "holes": 50,
    "slow": 50,
    "late": 50,
    "failovers": 20,
    "tails": 20,
    "pgbouncer": 1_000,
    "pools": 50,
    "idle": 50,
    "disk": 100,
    "storms": 50,
    "memory": 100,
    "transactions": 1_000,
    "forks": 1_000,
    "saturation": 300,
    "outages": 100,
    "strangers": 200,
    "deploys": 300,
    "providers": 300,
    "scattered": 300,
    "interrupts": 20_000,
    soak.NAME: 1,  # by time
}

#: Campaigns with a load of their own.
PROGRAMS = {producers.NAME: producers, soak.NAME: soak}


def main() -> int:
    asked = _arguments()
    preload("tests.chaos.world", *NEEDED)
    failed = 0
    for campaign in _campaigns(asked):
        _say(f"{', '.join(campaign.names)} on {campaign.backend}, seed {campaign.seed}")
        run = PROGRAMS[campaign.names[0]].run if campaign.names[0] in PROGRAMS else campaigns.run
        outcome = run(campaign, told=lambda text: _say(f"  {text}"))
        _report(outcome)
        failed += bool(outcome.violations)
        if asked.write:
            figures.write(outcome)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        default=os.environ.get("HOLDFAST_CHAOS", "all").split(),
        help=f"campaigns ({', '.join([*NEMESES, *PROGRAMS])}); several nemeses at once with commas; all: one after the other",
    )
    parser.add_argument("--backend", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument(
        "--count", type=int, help="strikes of each nemesis; by default those of docs/guarantees-tests.md"
    )
    parser.add_argument("--seconds", type=float, default=_from_environment("HOLDFAST_CHAOS_SECONDS"))
    parser.add_argument("--seed", type=int, default=_from_environment("HOLDFAST_SEED"))
    parser.add_argument("--write", action="store_true", help="write the figures into docs/guarantees-tests.md")
    return parser.parse_args()


def _from_environment(name: str) -> int | None:
    return int(os.environ[name]) if os.environ.get(name) else None


def _campaigns(asked: argparse.Namespace) -> list[Campaign]:
    seed = random.randrange(10**6) if asked.seed is None else asked.seed
    names = [name for word in asked.names for name in ([*FULL] if word == "all" else [word])]
    backends = ["sqlite", "postgres"] if asked.backend == "both" else [asked.backend]
    found = []
    for name in names:
        parts = tuple(name.split(","))
        if parts == (producers.NAME,):
            full = producers.FULL
            found += [Campaign(names=parts, backend=b, seed=seed, count=asked.count or full[b]) for b in backends]
            continue
        if unknown := set(parts) - ({*NEMESES} if len(parts) > 1 else {*NEMESES, soak.NAME}):
            sys.exit(f"there is no nemesis {', '.join(unknown)}; there are {', '.join([*NEMESES, *PROGRAMS])}")
        count = (
            asked.count if asked.count is not None or asked.seconds is not None else min(FULL[part] for part in parts)
        )
        found += [
            Campaign(names=parts, backend=backend, seed=seed, count=count, seconds=asked.seconds)
            for backend in backends
            if all(part == soak.NAME or backend in NEMESES[part]().backends for part in parts)
        ]
    return found


def _report(outcome: Outcome) -> None:
    counted = ", ".join(f"{count:,} {name}" for name, count in outcome.figures.items())
    _say(f"  {outcome.strikes} in {outcome.took:.0f} s; {counted}")
    if not outcome.violations:
        _say("  0 violations")
        return
    for violation in outcome.violations:
        _say(f"  {violation}")
    _say(f"  {len(outcome.violations)} violations; the history and the store are in {outcome.folder}")
    _say(f"  replay: {outcome.campaign.replay}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
