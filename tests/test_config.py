"""The configuration says file, line and what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT

from posttrain_watchdog.config import Config, ConfigError, load, parse


def test_every_part_has_a_default() -> None:
    config = parse("")
    assert config == Config()
    assert config.web.listen == "127.0.0.1:9877"


def test_the_shipped_example_is_valid() -> None:
    config = load(ROOT / "systemd" / "config.yaml")
    assert config.runs[0].temperature == 0.85


def test_durations_are_written_as_in_prometheus() -> None:
    assert parse("evaluation_interval: 1m30s").evaluation_interval == 90.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("runs:\n  - name: a\n    pathes: [x]\n", "f:3: runs.0.pathes: no such setting"),
        ("web:\n  listen: nowhere\n", "f:2: web.listen: expected HOST:PORT"),
        ("web: {listen: '0.0.0.0:9877'}\n", "f:1: web: 0.0.0.0 is not a loopback address: set allow_remote: true"),
        ("poll_interval: soon\n", "f:1: poll_interval: expected a duration such as 15s or 1m30s, got 'soon'"),
        ("a: [\n", "f:2: expected YAML"),
        ("- 1\n", "f:1: expected a mapping"),
        ("importance_sampling:\n  cap: -1\n", "f:2: importance_sampling.cap: Input should be greater than 0"),
    ],
)
def test_a_fault_names_its_line(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text, "f")
    assert str(error.value).startswith(expected)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("missing", "binary"):
        with pytest.raises(ConfigError) as error:
            load(tmp_path / name)
        assert "\n" not in str(error.value) and name in str(error.value)
