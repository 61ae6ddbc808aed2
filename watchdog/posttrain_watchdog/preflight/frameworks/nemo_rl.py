"""NeMo-RL (YAML and hydra overrides); read at the state of mid 2026."""

from __future__ import annotations

from posttrain_watchdog.preflight.framework import Framework

_G = "policy.generation"
_L = "loss_fn"

FRAMEWORK = Framework(
    name="nemo_rl",
    title="NeMo-RL",
    package="nemo-rl",
    read="git 7ea279ab",
    role="trainer",
    programs=(r"nemo_rl", r"run_grpo"),
    markers=(
        f"{_L}.use_importance_sampling_correction",
        f"{_G}.vllm_cfg.precision",
        "grpo.num_prompts_per_step",
        f"{_G}.vllm_cfg.gpu_memory_utilization",
        f"{_L}.reference_policy_kl_penalty",
    ),
    keys={
        "temperature": (f"{_G}.temperature",),
        "top_p": (f"{_G}.top_p",),
        "top_k": (f"{_G}.top_k",),
        "logprobs_mode": (f"{_G}.vllm_cfg.logprobs_mode", f"{_G}.vllm_kwargs.logprobs_mode"),
        "is_enabled": (f"{_L}.use_importance_sampling_correction",),
        "is_mode": (f"{_L}.truncated_importance_sampling_type",),
        "is_cap": (f"{_L}.truncated_importance_sampling_ratio",),
        "is_floor": (f"{_L}.truncated_importance_sampling_ratio_min",),
        "bypass": (f"{_L}.force_on_policy_ratio",),
        "gpu_memory": (f"{_G}.vllm_cfg.gpu_memory_utilization",),
        "engine_dtype": (f"{_G}.vllm_cfg.precision",),
        "dtype": ("policy.precision",),
        "kv_cache_dtype": (f"{_G}.vllm_cfg.kv_cache_dtype",),
        "max_completion": (f"{_G}.max_new_tokens",),
        "max_lag": ("grpo.async_grpo.max_trajectory_age_steps",),
        "router_replay": ("policy.router_replay.enabled",),
        "model": ("policy.model_name",),
        "enforce_eager": (f"{_G}.vllm_cfg.enforce_eager",),
        "logprob_error_threshold": ("grpo.seq_logprob_error_threshold",),
    },
    defaults={
        "temperature": (("0", 1.0),),
        "top_p": (("0", 1.0),),
        "top_k": (("0", None),),
        "logprobs_mode": (("0", "raw_logprobs"),),
        "is_enabled": (("0", False),),
        "is_mode": (("0", "tis"),),
        "router_replay": (("0", False),),
        "gpu_memory": (("0", 0.6),),
    },
    modes={"tis": ("token", "truncate"), "icepop": ("token", "mask"), "seq-mask-tis": ("token", "truncate")},
    known_prefixes=(f"{_L}.truncated_importance_sampling_",),
    known_keys=tuple(f"{_L}.truncated_importance_sampling_{k}" for k in ("type", "ratio", "ratio_min")),
    truncates=True,
    builtin="`loss_fn.use_importance_sampling_correction` with tis, icepop or seq-mask-tis; off by default. The "
    "trainer applies "
    "temperature and top-k/top-p to its logits",
    own_sampler="`policy.generation.vllm_cfg.logprobs_mode: processed_logprobs` (set in the shipped GRPO "
    "configurations, raw where absent)",
    logged="`gen_kl_error` = k3, `token_mult_prob_error` = mean exp|d|, `sampling_importance_ratio` after truncation",
)
