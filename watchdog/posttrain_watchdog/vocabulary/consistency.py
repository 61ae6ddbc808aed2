"""What the daemon recomputes from tokens: d = trainer logprob - engine logprob of the same token, under the mask."""

from __future__ import annotations

from posttrain_watchdog.vocabulary.spec import Spec, table

METRICS: tuple[Spec, ...] = (
    *table(
        "posttrain_",
        (
            ("tokens_compared", "tokens", "Tokens under the mask that both sides score, of the step"),
            ("sequences_compared", "", "Sequences of the step"),
            ("importance_ratio_mean", "", "mean exp(d) over tokens"),
            ("importance_ratio_stderr", "", "Standard error of the mean ratio (sequences as clusters)"),
            ("importance_ratio_min", "", "Smallest token ratio"),
            ("importance_ratio_max", "", "Largest token ratio, before any cap"),
            (
                "importance_ratio_reverse_mean",
                "",
                "mean exp(-d): 1 when tokens were drawn from the trainer's distribution",
            ),
            ("importance_ratio_reverse_stderr", "", "Standard error of the reverse mean"),
            ("importance_ratio_capped_fraction", "", "Fraction of tokens above the configured cap"),
            ("importance_ratio_sequence_geometric_mean", "", "exp(mean d) per sequence, averaged"),
            ("kl_k1", "nats", "mean(-d): KL(engine || trainer) estimate k1"),
            ("kl_k2", "nats", "mean(d^2/2): estimate k2"),
            ("kl_k3", "nats", "mean(exp(d)-1-d): estimate k3"),
            ("logprob_difference_abs_mean", "nats", "mean |d|"),
            ("logprob_difference_abs_max", "nats", "max |d|"),
            ("logprob_correlation", "", "Pearson correlation of engine and trainer logprobs"),
            ("effective_sample_size_fraction", "", "(sum w)^2 / (n sum w^2) of the token ratios"),
            ("unscored_fraction", "", "Fraction of tokens under the mask without an engine logprob"),
            ("non_finite_fraction", "", "Fraction of tokens under the mask whose logprob is NaN or infinite"),
            ("calibration_factor", "", "min(1, f0 * exp(-step/decay)) in force"),
            ("calibration_recommended_factor", "", "1 / mean ratio over the correction window: brings the mean to 1"),
            (
                "calibration_recommended_cap",
                "",
                "Largest cap that leaves 30 % of the tokens effective over the correction window; +Inf: none is needed",
            ),
        ),
        windowed=True,
    ),
    Spec("posttrain_logprob_difference_quantile", "Quantiles of d", "nats", labels=("quantile",)),
    Spec(
        "posttrain_sequence_log_ratio_quantile",
        "Quantiles of the sum of d over a sequence",
        "nats",
        labels=("quantile",),
    ),
    Spec(
        "posttrain_importance_correction_fraction",
        "Fraction of tokens or sequences that this correction would clip or drop at the configured cap",
        labels=("mode",),
    ),
    Spec(
        "posttrain_sequence_weight_mean",
        "Mean importance weight of a sequence, masked or truncated at the configured cap",
        labels=("mode",),
    ),
    Spec(
        "posttrain_sequence_weight_predicted",
        "The same as sequence length and k3 alone predict it: only a departure from it is a finding",
        labels=("mode",),
    ),
    Spec("posttrain_tokens_compared_total", "Tokens compared since the start", "tokens", "counter"),
    Spec(
        "posttrain_tokens_skipped_total",
        "Tokens left out to stay inside the budget, or because they could not be read",
        "tokens",
        "counter",
        labels=("reason",),
    ),
)
