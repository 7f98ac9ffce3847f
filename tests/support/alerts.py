"""Which alert rules of deploy/ fire when the values of one scrape last."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

DEPLOY = Path(__file__).parents[2] / "deploy"
#: The minutes that the values last: longer than any rule waits.
MINUTES = 60


def rules() -> dict[str, dict[str, object]]:
    """All rules by name."""
    groups = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def firing(folder: Path, *scrapes: str) -> set[str]:
    """The alerts that fire after an hour of these values, by promtool. Each scrape is one instance."""
    series = [
        {"series": _selector(sample.name, {**sample.labels, "instance": str(number)}), "values": f"{sample.value}+0x60"}
        for number, text in enumerate(scrapes)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    # promtool expects no firing alert of any rule, and names each rule that has one.
    queries = [f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) > 0' for name in rules()]
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


def _selector(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{{', '.join(f'{label}={value!r}' for label, value in sorted(labels.items()))}}}"
