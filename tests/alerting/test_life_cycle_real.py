"""The life of alerts is Prometheus': random series and rules, every evaluation compared by promtool."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from posttrain_watchdog.alerting.evaluation import Evaluator
from posttrain_watchdog.alerting.rules import RuleSet
from posttrain_watchdog.promql.engine import Engine
from posttrain_watchdog.promql.notation import parse_series
from posttrain_watchdog.series.store import Store

MINUTES = 24
DURATIONS = ("0s", "1m", "2m", "3m", "90s")


def alerts_by_minute(rules: RuleSet, series: list[dict[str, str]]) -> list[dict[str, float]]:
    """ALERTS and ALERTS_FOR_STATE after each evaluation, as we have them."""
    store = Store()
    engine = Engine(store)
    evaluator = Evaluator(rules, engine, store, as_prometheus=True)
    parsed = [parse_series(f"{each['series']} {each['values']}") for each in series]
    found = []
    for minute in range(MINUTES):
        now = minute * 60.0
        store.append_values(now, {m: v[minute] for m, v in parsed if v[minute] is not None})  # type: ignore[misc]
        evaluator.evaluate(now)
        result = engine.instant('{__name__=~"ALERTS.*"}', now)
        found.append({repr(m): v for m, v in result})  # type: ignore[union-attr]
    return found


@pytest.mark.real
def test_every_state_of_random_lives_is_that_of_prometheus(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    draw = random.Random(11)
    rules = [
        {
            "alert": f"R{i}",
            "expr": draw.choice(
                ["x > 5", "sum by (k) (x) > 5", "x > 5 unless on (k) y > 5", "max_over_time(x[2m]) > 5"]
            ),
            "for": draw.choice(DURATIONS),
            "keep_firing_for": draw.choice(DURATIONS),
            "labels": {"rule": str(i)},
        }
        for i in range(12)
    ]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    loaded = RuleSet.load([tmp_path / "rules.yml"])
    tests = []
    for _ in range(6):
        series = [
            {
                "series": f'{name}{{k="{k}"}}',
                "values": " ".join(draw.choice(["9", "9", "9", "1", "1", "_", "stale", "NaN"]) for _ in range(MINUTES)),
            }
            for name in "xy"
            for k in "ab"
        ]
        queries = [
            {
                "expr": '{__name__=~"ALERTS.*"}',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in sorted(state.items())],
            }
            for minute, state in enumerate(alerts_by_minute(loaded, series))
        ]
        tests.append({"interval": "1m", "input_series": series, "promql_expr_test": queries})
    assert sum(len(q["exp_samples"]) for t in tests for q in t["promql_expr_test"]) > 500  # type: ignore[attr-defined]
    (tmp_path / "t.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": tests}))
    theirs = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "t.yml")], capture_output=True, text=True, check=False
    )
    assert theirs.returncode == 0, theirs.stderr[:3000]
