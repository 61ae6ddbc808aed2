"""Native metric names of vLLM and SGLang, several generations of each, and the canonical name of each.

Promises: data only. Native names stand without prefix and without `_total`, newest first; where an endpoint shows
two generations at once (vLLM's --show-hidden-metrics-for-version), the newest is read.
Read from vLLM 0.8.5 to 0.32.0 (v1/metrics/loggers.py) and SGLang 0.4.9 to 0.5.23 (metrics/collector.py).
"""

from __future__ import annotations

from collections.abc import Mapping

PREFIXES: Mapping[str, str] = {
    "vllm:": "vllm",
    "ray_vllm_": "vllm",  # Ray: every character that is no letter or digit becomes _, and ray_ goes in front
    "ray_vllm:": "vllm",
    "vllm_": "vllm",
    "sglang:": "sglang",
    "ray_sglang_": "sglang",
    "sglang_": "sglang",
}

VLLM: Mapping[str, tuple[str, ...]] = {
    "requests_running": ("num_requests_running",),
    "requests_waiting": ("num_requests_waiting",),
    "kv_cache_usage_ratio": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),  # renamed in 0.9.2, old gone in 0.12
    "awake": ("engine_sleep_state",),  # from 0.12
    "weight_updates_in_flight": ("rl_weight_update_operations_in_flight",),  # 0.32
    "generation_tokens_per_second": ("avg_generation_throughput_toks_per_s",),  # V0
    "prompt_tokens_per_second": ("avg_prompt_throughput_toks_per_s",),  # V0
    "generation_tokens_total": ("generation_tokens",),
    "prompt_tokens_total": ("prompt_tokens",),
    "cached_tokens_total": ("prompt_tokens_cached",),
    "prefix_cache_queries_total": ("prefix_cache_queries", "gpu_prefix_cache_queries"),
    "prefix_cache_hits_total": ("prefix_cache_hits", "gpu_prefix_cache_hits"),
    "preemptions_total": ("num_preemptions",),
    "corrupted_requests_total": ("corrupted_requests",),  # only with VLLM_COMPUTE_NANS_IN_LOGITS=1
    "requests_finished_total": ("request_success",),
    "inter_token_seconds": ("inter_token_latency_seconds", "time_per_output_token_seconds"),  # renamed in 0.10.2
    "request_seconds_per_token": ("request_time_per_output_token_seconds",),  # from 0.11
    "time_to_first_token_seconds": ("time_to_first_token_seconds",),
    "request_seconds": ("e2e_request_latency_seconds",),
    "queue_seconds": ("request_queue_time_seconds",),
    "prefill_seconds": ("request_prefill_time_seconds",),
    "decode_seconds": ("request_decode_time_seconds",),
    "request_generation_tokens": ("request_generation_tokens",),
    "request_prompt_tokens": ("request_prompt_tokens",),
    "weight_update_seconds": ("rl_weight_update_operation_duration_seconds",),  # 0.32
}

SGLANG: Mapping[str, tuple[str, ...]] = {
    "requests_running": ("num_running_reqs",),
    "requests_waiting": ("num_queue_reqs",),
    "requests_paused": ("num_paused_reqs",),
    "kv_cache_usage_ratio": ("full_token_usage", "token_usage"),
    "prefix_cache_hit_ratio": ("cache_hit_rate",),
    "generation_tokens_per_second": ("gen_throughput",),
    "generation_tokens_total": ("generation_tokens",),
    "prompt_tokens_total": ("prompt_tokens",),
    "cached_tokens_total": ("cached_tokens",),
    "preemptions_total": ("num_retracted_requests",),
    "requests_finished_total": ("num_requests",),
    "requests_aborted_total": ("num_aborted_requests",),  # without _total in 0.4.9
    "inter_token_seconds": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "request_seconds_per_token": ("request_time_per_output_token_seconds",),
    "time_to_first_token_seconds": ("time_to_first_token_seconds",),
    "request_seconds": ("e2e_request_latency_seconds",),
    "queue_seconds": ("queue_time_seconds",),
}

TABLES: Mapping[str, Mapping[str, tuple[str, ...]]] = {"vllm": VLLM, "sglang": SGLANG}

LABELS: Mapping[str, str] = {
    "engine": "engine",
    "dp_rank": "engine",
    "finished_reason": "finished_reason",
    "le": "le",
    "ReplicaId": "replica",
    "WorkerId": "replica",
}
"""Native label -> canonical label; model names, sessions, nodes and pids of Ray are left out."""

SAME_ON_EVERY_RANK = ("tp_rank", "pp_rank", "moe_ep_rank")
"""SGLang with --enable-metrics-for-all-schedulers shows every rank; only rank 0 is read."""
