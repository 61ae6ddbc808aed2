"""Command lines: which are a trainer's or an engine's, and the settings on them under one name.

Promises: pure; recognises a program by what it runs, never by a word somewhere in its arguments (an editor or a grep
that names a script is neither). A value whose option looks like a secret is replaced before anything keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

HIDDEN = "<hidden>"
_SECRET = re.compile(
    r"api[_-]?key|secret|passw|credential|authorization|bearer|private[_-]?key|access[_-]?key|(?:^|[_.-])(?:hf[_-]?)?token$",
    re.I,
)
_LOOKS_SECRET = re.compile(r"\b(?:hf_|sk-|ghp_|glpat-|xox[bp]-)[\w-]{12,}|\bbearer\s+\S|\bauthorization:\s*\S", re.I)
_HYDRA = re.compile(r"[+~]{0,2}([A-Za-z_][\w/@-]*(?:\.[\w/@-]+)*)=(.*)", re.S)
_ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*$")
_LAUNCHERS = {
    "torchrun",
    "accelerate",
    "deepspeed",
    "srun",
    "mpirun",
    "mpiexec",
    "ray",
    "uv",
    "numactl",
    "nohup",
    "env",
}
_LAUNCHER_MODULES = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}

_ENGINES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("vllm", re.compile(r"vllm serve\b|vllm\.entrypoints\.|trl vllm-serve\b|trl\.scripts\.vllm_serve\b")),
    ("vllm", re.compile(r"VLLM::(?:EngineCore|APIServer)\b")),
    ("sglang", re.compile(r"sglang\.launch_server\b|sglang serve\b")),
)
_TRAINERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("verl", re.compile(r"verl\.(?:\w+\.)*(?:trainer\.)?\w*main\w*|main_ppo(?:\.py)?\b")),
    ("ms_swift", re.compile(r"(?:swift|megatron) rlhf\b|swift\.cli\.(?:\w+\.)?rlhf|swift/cli/(?:\w+/)?rlhf\.py")),
    ("trl", re.compile(r"trl (?:grpo|rloo|ppo|online_dpo|dpo|kto)\b|trl\.scripts\.(?:grpo|rloo|ppo)")),
    ("llama_factory", re.compile(r"llamafactory-cli train\b|llamafactory\.(?:launcher|cli)|llamafactory/launcher\.py")),
    ("openrlhf", re.compile(r"openrlhf\.cli\.train_\w+")),
    ("skyrl", re.compile(r"skyrl(?:_train)?\.(?:entrypoints|train)\.\w+")),
    ("nemo_rl", re.compile(r"(?:^|/| )run_(?:grpo|ppo|dapo)\w*\.py|nemo_rl\.")),
    ("prime_rl", re.compile(r"prime_rl[./](?:trainer|orchestrator|entrypoints)|(?:^| )rl @")),
    ("areal", re.compile(r"areal[./](?:launcher|trainer|experiments)|gsm8k_grpo\.py")),
)
_MARKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("slime", re.compile(r"--(?:use-tis|rollout-(?:batch|temperature|num)|use-rollout-routing|hf-checkpoint)")),
    ("trl", re.compile(r"--(?:use_vllm|vllm_mode|vllm_importance_sampling\w*|num_generations)\b")),
    ("ms_swift", re.compile(r"--rlhf_type\b")),
)  # fmt: skip
_SCRIPT = re.compile(r"(?:grpo|ppo|rloo|dapo|rlhf|reinforce|train)", re.I)

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "temperature": (
        "temperature",
        "actor_rollout_ref.rollout.temperature",
        "rollout.temperature",
        "rollout_temperature",
        "policy.generation.temperature",
        "generator.sampling_params.temperature",
        "gconfig.temperature",
        "sampling.temperature",
    ),
    "trainer_temperature": ("actor.temperature", "trainer.algorithm.temperature"),
    "top_p": (
        "top_p",
        "actor_rollout_ref.rollout.top_p",
        "rollout.top_p",
        "rollout_top_p",
        "policy.generation.top_p",
        "generator.sampling_params.top_p",
        "gconfig.top_p",
    ),
    "top_k": (
        "top_k",
        "actor_rollout_ref.rollout.top_k",
        "rollout.top_k",
        "rollout_top_k",
        "policy.generation.top_k",
        "generator.sampling_params.top_k",
        "gconfig.top_k",
    ),
    "logprobs_mode": (
        "logprobs_mode",
        "actor_rollout_ref.rollout.logprobs_mode",
        "actor_rollout_ref.rollout.engine_kwargs.vllm.logprobs_mode",
        "policy.generation.vllm_cfg.logprobs_mode",
        "generator.inference_engine.engine_init_kwargs.logprobs_mode",
        "generator.engine_init_kwargs.logprobs_mode",
    ),
    "logprobs": ("logprobs", "generator.sampling_params.logprobs", "top_logprobs_num"),
    "max_logprobs": ("max_logprobs",),
    "dtype": (
        "dtype",
        "actor_rollout_ref.rollout.dtype",
        "policy.generation.vllm_cfg.precision",
        "torch_dtype",
        "model.dtype",
        "policy.precision",
    ),
    "quantization": ("quantization", "actor_rollout_ref.rollout.quantization"),
    "model": ("model", "model_path", "model_name_or_path", "actor_rollout_ref.model.path", "hf_checkpoint",
              "policy.model_name", "pretrain", "trainer.policy.model.path"),
    "collective_timeout": ("ddp_timeout", "actor_rollout_ref.nccl_timeout", "distributed_timeout_minutes",
                           "dist_timeout"),
    "output": ("output_dir", "trainer.default_local_dir", "save_path", "save", "logger.log_dir", "ckpt.output_dir"),
    "port": ("port",),
    "host": ("host",),
}  # fmt: skip
"""One name -> the option or configuration key of each framework, dashes as underscores."""


@dataclass(frozen=True, slots=True)
class Role:
    """What a program is. `framework` is empty for a trainer of no known framework."""

    kind: str
    """trainer or engine"""
    framework: str
    launcher: bool = False
    """starts the processes that do the work"""


def role_of(argv: Sequence[str]) -> Role | None:
    """The role of a command line, or None."""
    words, launched = _program(argv)
    if not words:
        return None
    line = " ".join(words)
    head = " ".join(_runs(words))
    if "posttrain_watchdog" in head or "posttrain-watchdog" in head:
        return None
    for framework, pattern in _ENGINES:
        if pattern.match(head) or pattern.search(_module(head)):
            return Role("engine", framework, launched)
    for framework, pattern in _TRAINERS:
        if pattern.search(head):
            return Role("trainer", framework, launched)
    if not head.endswith(".py") and ".py " not in head + " ":
        return None
    for framework, pattern in _MARKS:
        if pattern.search(line):
            return Role("trainer", framework, launched)
    if _SCRIPT.search(PurePath(head.split()[0]).name):
        return Role("trainer", "", launched)
    return None


def _program(argv: Sequence[str]) -> tuple[list[str], bool]:
    """The words from the program that matters on, and whether a launcher stands in front of it."""
    words = [w for w in argv if w]
    launched = False
    while words:
        name = PurePath(words[0]).name
        if _ASSIGNMENT.match(words[0]):
            words = words[1:]
        elif _PYTHON.match(name):
            rest = _after_interpreter(words[1:])
            if rest[:2] and rest[0] == "-m" and len(rest) > 1 and rest[1] in _LAUNCHER_MODULES:
                launched, words = True, _after_launcher(rest[2:])
            elif rest and PurePath(rest[0]).name in _LAUNCHERS:
                words = rest  # a console script run by its interpreter
            else:
                return rest, launched
        elif name in _LAUNCHERS:
            launched = name not in ("env", "nohup", "numactl")
            words = _after_launcher(words[1:])
        elif words[0].startswith(("VLLM::", "sglang::")) or name in _NAMED or name.endswith(".py") or launched:
            return words, launched
        else:
            return [], launched
    return [], launched


_NAMED = {"vllm", "trl", "swift", "megatron", "sglang", "llamafactory-cli", "rl", "openrlhf"}


def _after_interpreter(words: Sequence[str]) -> list[str]:
    """Without the interpreter's own options."""
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
        rest = rest[2:] if rest[0] in ("-W", "-X") else rest[1:]
    return rest


def _after_launcher(words: Sequence[str]) -> list[str]:
    """From the script or module that a launcher starts."""
    for i, word in enumerate(words):
        name = PurePath(word).name
        starts = word == "-m" or name.endswith(".py") or _PYTHON.match(name) or name in _NAMED or name in _LAUNCHERS
        if starts and not word.startswith("--"):
            return list(words[i:])
    return []


def _runs(words: Sequence[str]) -> list[str]:
    """What is run: the module, or the script and its sub-command."""
    if words[0] == "-m":
        return list(words[1:2])
    if words[0] == "-c":
        return []
    name = PurePath(words[0]).name
    if name in _NAMED:
        return [name, *[w for w in words[1:2] if not w.startswith("-")]]
    return [words[0]]


def _module(head: str) -> str:
    """The path of a script as a module: site-packages/vllm/entrypoints/x.py is vllm.entrypoints.x."""
    if not head.endswith(".py"):
        return head
    return head.removesuffix(".py").partition("site-packages/")[2].replace("/", ".")


def options(argv: Sequence[str]) -> dict[str, str]:
    """Options and configuration keys of a command line: --a-b c, --a_b=c, -O, a.b=c; dashes as underscores.

    A flag without a value is "true". Of several, the last one counts. Secrets are hidden.
    """
    found: dict[str, str] = {}
    words = list(argv)
    for i, word in enumerate(words):
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            if not equals:
                after = words[i + 1] if i + 1 < len(words) else "--"
                value = "true" if after.startswith("--") or _HYDRA.fullmatch(after) else after
                if value == "true" and name.startswith("no-"):
                    name, value = name[3:], "false"
            key = name.replace("-", "_")
        elif (hydra := _HYDRA.fullmatch(word)) is not None and not _ASSIGNMENT.match(word):
            key, value = hydra[1], hydra[2]
        else:
            continue
        found[key] = HIDDEN if _SECRET.search(key) or _LOOKS_SECRET.search(value) else value
    return found


def without_secrets(argv: Sequence[str]) -> tuple[str, ...]:
    """The command line fit to be kept: values of options that look secret, and passwords in URLs, are hidden."""
    kept: list[str] = []
    hide = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if hide and not word.startswith("-"):
            kept.append(HIDDEN)
            hide = False
            continue
        secret = bool(_SECRET.search(name.lstrip("-"))) and (word.startswith("-") or bool(equals))
        hide = secret and not equals
        if _LOOKS_SECRET.search(word):
            kept.append(HIDDEN)
        elif secret and equals:
            kept.append(f"{name}={HIDDEN}")
        else:
            kept.append(re.sub(r"(://[^/\s:@]*):[^/\s@]+@", rf"\1:{HIDDEN}@", word))
    return tuple(kept)


def settings(given: Mapping[str, str]) -> dict[str, str]:
    """The options that every framework has, under one name."""
    found: dict[str, str] = {}
    for name, keys in SETTINGS.items():
        value = next((given[k] for k in keys if k in given), None)
        if value is not None:
            found[name] = value
    if "dtype" not in found:
        for flag, dtype in (("bf16", "bfloat16"), ("fp16", "float16")):
            if given.get(flag, "false").lower() in ("true", "1"):
                found["dtype"] = dtype
    if "distributed_timeout_minutes" in given and "ddp_timeout" not in given:
        minutes = given["distributed_timeout_minutes"]
        if minutes.isdigit():
            found["collective_timeout"] = str(60 * int(minutes))
    return found
