"""The peer's side of the conversation: one JSON order per line in, one answer per line out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable


def obey(act: Callable[[str, int, int], float]) -> None:
    """Answer orders until the other side closes: *act* gets the step, the count and the batch."""
    for line in sys.stdin:
        order = json.loads(line)
        seconds = act(order["act"], order["count"], order.get("batch", 0))
        print(json.dumps({"seconds": seconds}), flush=True)
