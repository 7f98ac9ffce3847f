"""Which alert rules of deploy/ fire when what was scraped lasts, or goes on."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml
from prometheus_client.parser import text_string_to_metric_families

DEPLOY = Path(__file__).parents[2] / "deploy"
#: The minutes that the values last: longer than any rule waits.
MINUTES = 60
#: Samples that only grow.
COUNTERS = ("_total", "_count", "_bucket", "_sum")


class Before(NamedTuple):
    """What the same instances reported before the fault. Counters go on growing as fast as they did since then."""

    scrapes: Sequence[str]
    elapsed_s: float


def rules() -> dict[str, dict[str, object]]:
    """All rules by name."""
    groups = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def firing(folder: Path, *scrapes: str, before: Before | None = None) -> set[str]:
    """The alerts that fire within an hour of these values, by promtool. Each scrape is one instance."""
    earlier = dict(_samples([] if before is None else before.scrapes))
    series = [
        {"series": selector, "values": _values(selector, value, earlier, before)}
        for selector, value in _samples(scrapes)
    ]
    # promtool expects no firing alert of any rule, and names each rule that has one.
    queries = [f'max_over_time(ALERTS{{alertname="{name}", alertstate="firing"}}[1h])' for name in rules()]
    tests = [{"expr": query, "eval_time": f"{MINUTES}m", "exp_samples": []} for query in queries]
    case = {"interval": "1m", "input_series": series, "promql_expr_test": tests}
    document = {"rule_files": [str(DEPLOY / "alerts.yaml")], "evaluation_interval": "1m", "tests": [case]}
    file = folder / "firing.yaml"
    file.write_text(yaml.safe_dump(document))
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    output = done.stdout + done.stderr
    names = set(re.findall(r'alertname=\\?"(\w+)', output))
    assert bool(names) == bool(done.returncode), output
    return names


def _samples(scrapes: Sequence[str]) -> Iterator[tuple[str, float]]:
    for number, text in enumerate(scrapes):
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                yield _selector(sample.name, {**sample.labels, "instance": str(number)}), sample.value


def _values(selector: str, value: float, earlier: dict[str, float], before: Before | None) -> str:
    """The values of a series, minute by minute, in the notation of promtool; ``_`` is a missing one."""
    if before is None:
        return f"{value}+0x{MINUTES}"
    first, growth = earlier.get(selector), 0.0
    if selector.partition("{")[0].endswith(COUNTERS):
        growth = (value - (first or 0.0)) / before.elapsed_s * 60
    return f"{'_' if first is None else first} {value}+{growth}x{MINUTES}"


def _selector(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{{', '.join(f'{label}={value!r}' for label, value in sorted(labels.items()))}}}"
