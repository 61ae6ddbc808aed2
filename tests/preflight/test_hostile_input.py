"""Whatever a file holds, preflight answers with findings."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posttrain_watchdog.preflight import check
from posttrain_watchdog.preflight.render import as_json, as_sarif, as_text

SAMPLES = [
    p.read_text(encoding="utf-8")
    for folder in ("good", "bad")
    for p in sorted((ROOT / "tests" / "data" / "preflight" / folder).iterdir())
]
SUFFIXES = (".yaml", ".json", ".toml", ".sh", ".txt", ".py")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), suffix=st.sampled_from(SUFFIXES))
def test_damaged_configurations_never_raise(tmp_path: Path, data: st.DataObject, suffix: str) -> None:
    sample = data.draw(st.sampled_from(SAMPLES))
    start = data.draw(st.integers(0, len(sample)))
    length = data.draw(st.integers(0, 40))
    junk = data.draw(st.text(max_size=20))
    path = tmp_path / f"config{suffix}"
    path.write_text(sample[:start] + junk + sample[start + length :], encoding="utf-8", errors="replace")
    findings = check([path])
    for render in (as_text, as_json):
        assert render(findings)
    assert as_sarif(findings, "0")


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300))
def test_arbitrary_bytes_never_raise(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"config{suffix}"
    path.write_bytes(content)
    check([path])


@pytest.mark.parametrize(
    "text",
    [
        "use_vllm: true\ntemperature: .nan\ntop_p: .inf\n",
        "use_vllm: true\nvllm_importance_sampling_clip_max: -1e308\nmax_completion_length: 1e308\n",
        "use_vllm: true\nvllm_importance_sampling_clip_max: .inf\nmax_completion_length: 99999\n",
        "use_vllm: [1, [2, {a: b}]]\nvllm_mode: {x: 1}\n",
        "use_vllm: true\ntemperature: 2024-01-01\ntop_k: 0x10\n",
        "<<: *missing\n",
        "use_vllm: !!python/object/apply:os.system ['true']\nvllm_mode: server\n",
        "? [a, b]\n: c\nuse_vllm: true\n",
    ],
)
def test_odd_values_are_judged_or_named_and_never_run(tmp_path: Path, text: str) -> None:
    path = tmp_path / "grpo.yaml"
    path.write_text(text, encoding="utf-8")
    assert as_text(check([path]))
