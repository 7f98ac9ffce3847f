"""``next_after`` of a peer, in the peers' environment: reads orders, answers seconds per call."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo


def cronsim_next(expression: str, start: datetime) -> Any:
    from cronsim import CronSim

    return lambda: next(CronSim(expression, start))


def cronsim_walk(expression: str, start: datetime) -> Any:
    from cronsim import CronSim

    return CronSim(expression, start).__next__


def croniter_next(expression: str, start: datetime) -> Any:
    from croniter import croniter

    return lambda: croniter(expression, start).get_next(datetime)


def croniter_walk(expression: str, start: datetime) -> Any:
    from croniter import croniter

    walker = croniter(expression, start)
    return lambda: walker.get_next(datetime)


WAYS = {
    "cronsim": (cronsim_walk, cronsim_next),
    "croniter": (croniter_walk, croniter_next),
}


def measure(make: Any, expression: str, start: datetime, moments: int, times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        call = make(expression, start)
        for _ in range(moments):
            call()
    return (time.perf_counter() - began) / (moments * times)


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        start = datetime.fromisoformat(order["start"]).astimezone(ZoneInfo(order["tz"]))
        walk, fresh = WAYS[order["peer"]]
        asked = (order["expression"], start, order["moments"], order["times"])
        answer = {"walk": measure(walk, *asked), "fresh": measure(fresh, *asked)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
