"""Trainers and engines on this host: captured command lines, and real processes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from posttrain_watchdog.model import Metric
from posttrain_watchdog.sources.host.process_arguments import HIDDEN, options, role_of, without_secrets
from posttrain_watchdog.sources.host.process_findings import findings, mode_of, row
from posttrain_watchdog.sources.host.processes import Process, discover, make, read_list, scan


def process(line: str, pid: int = 1, environment: dict[str, str] | None = None) -> Process:
    made = make(pid, line.split(), environment)
    assert made is not None, line
    return made


# --- recognising


@pytest.mark.parametrize(
    ("line", "kind", "framework", "launcher"),
    [
        ("vllm serve /m --port 1", "engine", "vllm", False),
        ("/v/bin/python3.11 /v/bin/vllm serve /m", "engine", "vllm", False),
        ("python -u -m vllm.entrypoints.openai.api_server --model m", "engine", "vllm", False),
        ("trl vllm-serve --model m", "engine", "vllm", False),
        ("python3 -m sglang.launch_server --model-path m", "engine", "sglang", False),
        ("python3 -m verl.trainer.main_ppo a.b=1", "trainer", "verl", False),
        ("python -m torch.distributed.run --nproc_per_node 8 grpo.py --use_vllm true", "trainer", "trl", True),
        ("torchrun --nproc-per-node=8 -m openrlhf.cli.train_ppo_ray --x 1", "trainer", "openrlhf", True),
        ("accelerate launch --config_file c.yaml grpo.py --num_generations 8", "trainer", "trl", True),
        ("swift rlhf --rlhf_type grpo", "trainer", "ms_swift", False),
        ("env A=1 NCCL_DEBUG=INFO python train.py --use-tis", "trainer", "slime", False),
        ("python my_grpo_run.py --lr 1", "trainer", "", False),
        ("uv run python examples/run_grpo_math.py --config c.yaml", "trainer", "nemo_rl", True),
    ],
)
def test_programs_that_are_known(line: str, kind: str, framework: str, launcher: bool) -> None:
    role = role_of(line.split())
    assert role is not None
    assert (role.kind, role.framework, role.launcher) == (kind, framework, launcher)


@pytest.mark.parametrize(
    "line",
    [
        "vim grpo.py",
        "grep -r vllm serve .",
        "tail -f train.log",
        "bash -c python train.py",
        "python -c import vllm",
        "python -m posttrain_watchdog run",
        "python manage.py runserver",
        "less /v/bin/vllm serve",
        "python -m pytest tests/test_train.py",
        "",
    ],
)
def test_programs_that_only_name_one(line: str) -> None:
    assert role_of(line.split()) is None


def test_the_process_lists_of_the_cases(cases: Path) -> None:
    found = {p.parent.name[:3]: read_list(p.read_text()) for p in sorted(cases.glob("*/procs.txt"))}
    assert {name: [p.role.framework for p in each] for name, each in found.items()} == {
        "O01": ["trl"],
        "O03": ["slime"],
        "O05": ["verl"],
        "O14": [""],
    }
    assert found["O05"][0].pid == 9000
    assert found["O05"][0].settings["model"] == "gpt-oss-20b"


def test_lists_as_ps_prints_them() -> None:
    text = (
        "USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\n"
        "root         311  0.0  0.0   4624  3712 ?        Ss   10:00   0:00 vim grpo.py\n"
        "root         312 99.0  1.0 123456 98765 ?        Rl   10:00   9:59 python grpo.py --use_vllm true --x 'a b'\n"
    )
    assert [(p.pid, p.role.framework) for p in read_list(text)] == [(312, "trl")]
    bare = (
        '  77 vllm serve /m --max-logprobs 5\n\npython -m sglang.launch_server --model-path "unclosed\n# vllm serve\n'
    )
    assert [(p.pid, p.role.framework) for p in read_list(bare)] == [(77, "vllm"), (3, "sglang")]


# --- arguments


def test_every_way_to_write_an_option() -> None:
    line = "vllm serve /m --max-logprobs 5 --logprobs-mode=raw_logits --enforce-eager --no-enable-x a.b.c=1 +d.e=f -O3"
    assert options(line.split()) == {
        "max_logprobs": "5",
        "logprobs_mode": "raw_logits",
        "enforce_eager": "true",
        "enable_x": "false",
        "a.b.c": "1",
        "d.e": "f",
    }


def test_secrets_are_never_kept() -> None:
    line = (
        "vllm serve /m --api-key sk-1 --hf-token=hf_2 --port 8000 trainer.wandb_api_key=w3 --max-num-batched-tokens 9"
        " --url https://me:pw4@host/x --tokenizer t"
    )
    secrets = ("sk-1", "hf_2", "w3", "pw4")
    made = process(line, environment={"HF_TOKEN": "hf_5", "RANK": "3", "WANDB_API_KEY": "w6"})
    shown = repr(made) + repr(options(line.split()))
    assert not any(s in shown for s in (*secrets[:3], "hf_5", "w6"))
    assert not any(s in " ".join(made.argv) for s in secrets)
    assert made.argv.count(HIDDEN) == 1 and "9" in made.argv and "t" in made.argv
    assert made.environment == {"RANK": "3"}
    headers = ["vllm", "serve", "--header", "Authorization: Bearer abc", "--note", "hf_abcdefghijklmnop"]
    assert without_secrets(headers) == ("vllm", "serve", "--header", HIDDEN, "--note", HIDDEN)
    assert options(headers) == {"header": HIDDEN, "note": HIDDEN}
    assert without_secrets(["--api-key", "--port", "1"]) == ("--api-key", "--port", "1")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.temperature=0.7", ("0.7", None)),
        ("python train.py --use-tis --rollout-temperature 0.8 --rollout-top-p 0.9", ("0.8", "0.9")),
        ("python -m skyrl_train.entrypoints.main_base generator.sampling_params.temperature=0.6", ("0.6", None)),
        ("trl grpo --temperature 0.85 --top_p=0.95", ("0.85", "0.95")),
    ],
)
def test_one_name_for_the_keys_of_every_framework(line: str, expected: tuple[str, str | None]) -> None:
    given = process(line).settings
    assert (given["temperature"], given.get("top_p")) == expected


# --- findings


def causes(trainer: str, engine: str | None, environment: dict[str, str] | None = None) -> dict[str, float]:
    engines = [process(engine, 2, environment)] if engine else []
    made = [f.diagnosis() for f in findings([process(trainer)], engines)]
    return {d.cause: round(d.confidence, 2) for d in made if d is not None}


HOT = "trl grpo --temperature 0.85"


@pytest.mark.parametrize(
    ("trainer", "engine", "expected"),
    [
        (HOT, "vllm serve /m --logprobs-mode raw_logprobs", {"logprobs_mode_raw": 0.91}),
        (HOT, "vllm serve /m", {"logprobs_mode_raw": 0.5}),
        (HOT, "vllm serve /m --logprobs-mode processed_logprobs", {}),
        (HOT, "trl vllm-serve --model /m", {}),
        (HOT, "python -m sglang.launch_server --model-path m", {}),
        ("trl grpo --temperature 1.0", "vllm serve /m", {}),
        ("trl grpo --lr 1", "vllm serve /m", {}),
        (HOT, "vllm serve /m --logprobs-mode raw_logits", {"logits_not_logprobs": 0.91}),
        (HOT + " --top_p 0.9", "vllm serve /m --logprobs-mode processed_logprobs", {"truncated_sampling": 0.23}),
        ("python run_grpo.py policy.generation.top_p=0.9", None, {}),
        (
            "python -m skyrl_train.entrypoints.main_base generator.sampling_params.logprobs=50",
            "vllm serve /m --max-logprobs 20",
            {"engine_logprobs_missing": 0.91},
        ),
        (
            "python -m areal.launcher.local gconfig.temperature=0.9 actor.temperature=1.0",
            None,
            {"temperature_mismatch": 0.91},
        ),
    ],
)
def test_arguments_that_do_not_fit(trainer: str, engine: str | None, expected: dict[str, float]) -> None:
    assert causes(trainer, engine) == expected


def test_an_environment_that_unscales_sglang() -> None:
    engine = "python -m sglang.launch_server --model-path m"
    assert causes(HOT, engine, {"SGLANG_RETURN_ORIGINAL_LOGPROB": "1"}) == {"logprobs_mode_raw": 0.91}


def test_versions_change_what_a_mode_means() -> None:
    engine = process("vllm serve /m --logprobs-mode processed_logprobs", 2)
    engine.versions["vllm"] = "0.10.1"
    assert [f.cause for f in findings([process(HOT)], [engine])] == ["logprobs_mode_raw"]
    served = process("trl vllm-serve --model /m", 3)
    served.versions["trl"] = "0.25.0"
    assert mode_of(served) == ("raw_logprobs", False)
    inside = process(HOT)
    inside.versions["trl"] = "0.23.1"
    assert [f.cause for f in findings([inside], [])] == ["logprobs_mode_raw"]


def test_number_formats_are_compared_and_named() -> None:
    found = findings([process("trl grpo --bf16 true")], [process("vllm serve /m --dtype half --quantization fp8", 2)])
    assert {f.name for f in found} == {"dtype", "quantization"} and all(f.diagnosis() is None for f in found)
    assert findings([process("trl grpo --bf16 true")], [process("vllm serve /m --dtype bfloat16", 2)]) == []


def test_a_collective_timeout_is_a_metric() -> None:
    timeout = Metric("posttrain_collective_timeout_seconds")
    assert row([process("trl grpo --ddp_timeout 120")]).values == {timeout: 120.0}
    assert row([process("trl grpo --lr 1")]).values == {}


def test_the_recorded_command_lines(recordings: Path) -> None:
    for folder in sorted(recordings.glob("vllm-*")):
        if not (folder / "command.json").exists():
            continue
        command = json.loads((folder / "command.json").read_text())
        made = make(1, command["cmd"], command["env"])
        assert made is not None and made.role.framework == "vllm"
        assert made.settings["logprobs_mode"] == folder.name.removeprefix("vllm-")
        assert set(made.environment) == {"VLLM_SERVER_DEV_MODE"}
        assert discover([made]).metrics_urls == [f"http://127.0.0.1:{made.settings['port']}/metrics"]
    served = process((recordings / "server-mode-processed" / "server_command.txt").read_text())
    assert mode_of(served) == ("processed_logprobs", True)


# --- what is offered to watch


def test_a_launcher_is_left_out_where_its_workers_run() -> None:
    launcher = process("torchrun grpo.py --use_vllm true", 10)
    worker = process("python -u grpo.py --use_vllm true", 11)
    worker.parent = 10
    assert [p.pid for p in discover([launcher, worker]).trainers] == [11]
    assert [p.pid for p in discover([launcher]).trainers] == [10]


def test_what_is_in_the_way_is_said() -> None:
    found = discover([process("python -m sglang.launch_server --model-path m", 5), process("vllm serve /m", 6)])
    assert found.metrics_urls == ["http://127.0.0.1:8000/metrics"]
    assert any("--enable-metrics" in n for n in found.notes)
    assert found.roles == {5: "engine", 6: "engine"}


_SERVES = (
    "import socket, sys\n"
    "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
    "print('listening', flush=True)\n"
    "sys.stderr.write('ready\\n'); sys.stderr.flush()\n"
    "sys.stdin.read()\n"
)


@contextmanager
def running(script: Path, *arguments: str, log: Path, piped: bool = False) -> Iterator[int]:
    """A real process that waits for its standard input to close; `log` is where its output goes."""
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_SERVES)
    tee = None
    with log.open("wb") as file:
        out = file
        if piped:
            tee = subprocess.Popen(["tee", "-a", str(log)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            assert tee.stdin is not None
            out = tee.stdin  # type: ignore[assignment]
        child = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.PIPE,
            cwd=log.parent,
            env={"RANK": "0", "HF_TOKEN": "hf_secret"},
        )
        if tee is not None and tee.stdin is not None:
            tee.stdin.close()
        try:
            assert child.stderr is not None and child.stderr.readline() == b"ready\n"
            yield child.pid
        finally:
            child.communicate()
            if tee is not None:
                tee.wait()


def test_a_real_engine_and_a_real_trainer_are_found(tmp_path: Path) -> None:
    served, trained = tmp_path / "engine.log", tmp_path / "train.log"
    (tmp_path / "out").mkdir()
    with (
        running(tmp_path / "bin" / "vllm", "serve", "/m", "--logprobs-mode", "raw_logprobs", log=served) as engine,
        running(
            tmp_path / "grpo.py", "--use_vllm", "true", "--temperature", "0.7", "--output_dir", "out",
            log=trained, piped=True,
        ) as trainer,
    ):  # fmt: skip
        mine = [p for p in scan() if p.pid in (engine, trainer)]
        found = discover(mine)
    assert [p.pid for p in found.engines] == [engine]
    assert [p.pid for p in found.trainers] == [trainer]
    assert found.engines[0].outputs == (served,), "the file behind its stdout"
    assert trained in found.trainers[0].outputs, "the file that tee writes"
    assert found.folders == [tmp_path / "out"]
    (port,) = found.engines[0].ports
    assert found.metrics_urls == [f"http://127.0.0.1:{port}/metrics"]
    assert found.temperature == 0.7
    assert found.trainers[0].environment == {"RANK": "0"} and "hf_secret" not in repr(found)
    assert [f.cause for f in findings(found.trainers, found.engines)] == ["logprobs_mode_raw"]


def test_versions_are_read_beside_the_interpreter(tmp_path: Path) -> None:
    site = tmp_path / "v" / "lib" / "python3.11" / "site-packages"
    (site / "vllm-0.10.1.dist-info").mkdir(parents=True)
    with running(tmp_path / "v" / "bin" / "vllm", "serve", "/m", log=tmp_path / "e.log") as engine:
        (found,) = [p for p in scan() if p.pid == engine]
    assert found.versions["vllm"] == "0.10.1"


def test_nobody_is_a_trainer_here_by_accident() -> None:
    with socket.socket():
        assert not any("pytest" in " ".join(p.argv) for p in scan())
