"""RLinf's keys (a3816b59): TensorBoard only, there is no console to read.

rollout_train_kl is mean |d|, not a divergence; behav_approx_kl is mean(-d) over the tokens that the mask left.
"""

from __future__ import annotations

from collections.abc import Mapping

KEYS: Mapping[str, str] = {
    "actor/training/actor/final_loss": "loss",
    "actor/training/actor/entropy_loss": "entropy",
    "actor/training/actor/kl_loss": "kl_ref",
    "actor/training/actor/grad_norm": "grad_norm",
    "actor/training/actor/lr": "learning_rate",
    "actor/training/actor/rollout_train_kl": "logprob_difference_abs_mean",
    "actor/training/actor/policy_loss": "policy_loss",
    "actor/policy_loss": "policy_loss",
    "actor/training/actor/approx_kl": "ppo_kl",
    "actor/proximal_approx_kl": "ppo_kl",
    "actor/training/actor/ratio": "ppo_ratio_mean",
    "actor/proximal_ratio": "ppo_ratio_mean",
    "actor/training/actor/clip_fraction": "clip_fraction",
    "actor/clip_fraction": "clip_fraction",
    "actor/behav_approx_kl": "mismatch_kl_k1",
    "actor/behav_clip_fraction": "is_out_of_bounds_fraction_high",
    "actor/current_version": "weight_version",
}
