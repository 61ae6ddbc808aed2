"""The closed vocabulary of causes: what `diagnoses[].cause` can be, and what each means."""

from __future__ import annotations

from collections.abc import Mapping

TOKEN_CAUSES: Mapping[str, str] = {
    "logprobs_mode_raw": "the engine reports logprobs before temperature/penalties, tokens were sampled after them",
    "temperature_mismatch": "engine and trainer use different temperatures, and the engine really sampled at its own",
    "truncated_sampling": "top-k/top-p/min-p renormalised logprobs against the trainer's full softmax",
    "logit_processor": "penalties, bad words, bias or grammar in the engine that the trainer does not apply",
    "logits_not_logprobs": "the reported values are logits (positive values, no normalisation)",
    "engine_logprobs_missing": "none, null, empty or all zero",
    "prompt_logprobs_missing": "completions carry logprobs, prompts were asked for and have none",
    "length_mismatch": "the two sides hold a different number of tokens",
    "mask_shifted": "completion mask moved by one or more positions",
    "mask_covers_padding": "positions after the end of the sequence count",
    "mask_covers_prompt": "prompt positions count",
    "mask_covers_tool_tokens": "tokens that the engine did not sample count",
    "mask_drops_eos": "the end token never counts although it was sampled",
    "logprobs_shifted": "logprobs belong to the neighbouring token",
    "sequences_misrouted": "logprobs belong to another sequence of the batch",
    "retokenised": "the two sides hold different token ids",
    "context_mismatch": "the trainer scores the tokens after a different prefix than the engine had",
    "stale_weights": "the engine samples from older weights than it should",
    "precision_noise": "symmetric, small, worst at improbable tokens: number formats or kernels",
    "routing_mismatch": "mixture-of-experts routing differs: few tokens, very large differences",
    "policy_lag": "expected off-policyness: the trainer has moved since the rollout",
    "non_finite": "NaN or infinite logprobs",
    "logprobs_wrong_token": "the engine logprob is that of another candidate of the same position",
    "stale_prefix_cache": "the engine reuses attention state computed with older weights",
    "weights_corrupted": "the engine's weights are wrong since an update, not merely old",
    "partial_divergence": "only some sequences diverge, and something they share tells which",
    "trainer_not_reproducible": "two forward passes of the trainer over the same tokens differ",
    "trainer_logprobs_invalid": "trainer logprobs above 0 or on a coarse grid (bf16 head)",
    "unsampled_eos_trained": "an end token that the engine never sampled was appended and is trained on",
    "mixed_weight_versions": "one sequence holds tokens of several weight versions though partial rollouts are off",
    "position_dependent": "the error follows padding or position (position ids, left padding)",
    "healthy": "nothing wrong",
    "unknown": "something wrong, and none of the above explains it",
}

RUN_CAUSES: Mapping[str, str] = {
    "length_artefact": "a sequence-level weight sums over long sequences: it looks abnormal, the tokens are fine",
    "mismatch_growing": "trainer and engine drift apart steadily, still inside the limits",
    "transient_spike": "one or a few steps out of line, recovered",
    "non_finite_training": "NaN or infinite loss, gradient or logits in the trainer",
    "no_learning_signal": "the groups have no spread of reward: advantages and gradients vanish",
    "completions_truncated": "most completions hit the length limit",
    "eos_mismatch": "the end token that the engine stops at is not the one the trainer knows",
    "value_function_failing": "the critic explains nothing or explodes",
    "collective_hang": "ranks wait in a collective that one rank never entered",
    "weight_sync_stuck": "the update of the engine's weights does not finish",
    "stalled": "no step for far longer than usual, cause not visible",
    "gpu_out_of_memory": "a GPU ran out of memory: in logprobs, sync or generation",
    "host_memory_leak": "host memory grows towards its end",
    "gpu_hardware_fault": "ECC, Xid, bus",
    "throughput_collapse": "the engine or the trainer slowed down",
    "wrong_advantage_groups": "advantages are normalised over the wrong groups: group means are not 0",
    "sampling_exhausted": "dynamic sampling cannot fill the batch",
    "entropy_explosion": "the policy drifts to noise",
    "metrics_dropped": "the tracker drops metrics; what is on the dashboard is stale",
    "metric_scale_changed": "the logging changed, not the run",
}

CAUSES: Mapping[str, str] = {**TOKEN_CAUSES, **RUN_CAUSES}
