"""prime-rl (TOML); read at the state of mid 2026."""

from __future__ import annotations

from posttrain_watchdog.preflight.framework import Framework

FRAMEWORK = Framework(
    name="prime_rl",
    title="prime-rl",
    package="prime-rl",
    read="git 559b4477",
    role="trainer",
    programs=(r"prime_rl", r"\buv run (?:rl|trainer|orchestrator)\b"),
    markers=(
        "orchestrator.batch_size",
        "trainer.loss.type",
        "orchestrator.max_off_policy_steps",
        "inference.model.max_model_len",
        "weight_broadcast.type",
        "trainer.model.impl",
    ),
    keys={
        "temperature": ("orchestrator.sampling.temperature", "orchestrator.train.sampling.temperature"),
        "top_p": ("orchestrator.sampling.top_p", "orchestrator.train.sampling.top_p"),
        "top_k": ("orchestrator.sampling.top_k", "orchestrator.train.sampling.top_k"),
        "min_p": ("orchestrator.sampling.min_p", "orchestrator.train.sampling.min_p"),
        "repetition_penalty": (
            "orchestrator.sampling.repetition_penalty",
            "orchestrator.train.sampling.repetition_penalty",
        ),
        "logprobs_mode": ("inference.vllm.logprobs_mode", "inference.vllm_extra.logprobs_mode"),
        "gpu_memory": ("inference.vllm.gpu_memory_utilization", "inference.gpu_memory_utilization"),
        "engine_dtype": ("inference.model.dtype", "inference.vllm.dtype"),
        "quantization": ("inference.vllm.quantization",),
        "max_completion": ("orchestrator.sampling.max_tokens", "orchestrator.train.sampling.max_completion_tokens"),
        "max_lag": ("orchestrator.max_off_policy_steps",),
        "router_replay": ("trainer.enable_router_replay",),
        "engine_router_replay": (
            "inference.vllm.enable_return_routed_experts",
            "inference.enable_return_routed_experts",
        ),
        "timeout": ("trainer.dist_timeout_seconds",),
        "model": ("model.name",),
        "engine_max_len": ("inference.model.max_model_len",),
    },
    defaults={
        "temperature": (("0", 1.0),),
        "top_p": (("0", 1.0),),
        "top_k": (("0", -1),),
        "logprobs_mode": (("0", "processed_logprobs"),),
        "max_lag": (("0", 8),),
        "router_replay": (("0", False),),
        "gpu_memory": (("0", 0.9),),
    },
    needs_correction=False,
    builtin="The loss masks tokens whose probability moved too far from the engine's (DPPO, 0.2); always on",
    own_sampler="Nothing: its inference server starts with processed_logprobs",
    logged="`mismatch_kl/*` = k3 of the CURRENT policy against the engine; non-finite values are dropped",
)
