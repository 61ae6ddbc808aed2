"""The statistics of one step under the names of the vocabulary."""

from __future__ import annotations

import math

import numpy as np

from posttrain_watchdog.consistency.calibration import Recommendation, calibration_factor
from posttrain_watchdog.consistency.importance import affected_fractions, sequence_weights
from posttrain_watchdog.consistency.ratios import Ratios
from posttrain_watchdog.consistency.settings import Settings
from posttrain_watchdog.model import Metric, Row

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def row_of(
    step: int, ratios: Ratios, settings: Settings, recommended: Recommendation, *, compared: int, skipped: int
) -> Row:
    """The row of one finished step. A statistic that the step does not have (no token compared) is left out."""
    n = ratios.tokens
    values: dict[str, float] = {
        "tokens_compared": float(n),
        "sequences_compared": float(sum(len(c) for c in ratios.sequence_tokens)),
        "unscored_fraction": ratios.unscored / ratios.masked if ratios.masked else math.nan,
        "non_finite_fraction": ratios.non_finite / ratios.masked if ratios.masked else math.nan,
        "tokens_compared_total": float(compared),
        "calibration_factor": calibration_factor(step, settings),
        "calibration_recommended_factor": recommended.factor,
        "calibration_recommended_cap": recommended.cap,
    }
    row = {Metric(f"posttrain_{k}"): v for k, v in values.items()}
    row[Metric("posttrain_tokens_skipped_total", {"reason": "budget"})] = float(skipped)
    if n:
        row |= {Metric(f"posttrain_{k}"): v for k, v in _of_tokens(ratios).items()}
        for q in QUANTILES:
            row[Metric("posttrain_logprob_difference_quantile", {"quantile": f"{q:g}"})] = ratios.sketch.quantile(q)
        row |= _of_sequences(ratios)
        for mode, fraction in affected_fractions(ratios, settings.cap).items():
            row[Metric("posttrain_importance_correction_fraction", {"mode": mode})] = fraction
        for mode, (observed, predicted) in sequence_weights(ratios, settings.cap).items():
            row[Metric("posttrain_sequence_weight_mean", {"mode": mode})] = observed
            row[Metric("posttrain_sequence_weight_predicted", {"mode": mode})] = predicted
    return Row({k: v for k, v in row.items() if not math.isnan(v)}, step if step >= 0 else None)


def _of_tokens(ratios: Ratios) -> dict[str, float]:
    reverse = ratios.mean("reverse")
    return {
        "importance_ratio_mean": ratios.ratio_mean,
        "importance_ratio_stderr": ratios.standard_error(ratios.sequence_ratio, ratios.ratio_mean),
        "importance_ratio_min": math.exp(ratios.low),
        "importance_ratio_max": math.exp(ratios.high),
        "importance_ratio_reverse_mean": reverse,
        "importance_ratio_reverse_stderr": ratios.standard_error(ratios.sequence_reverse, reverse),
        "importance_ratio_capped_fraction": ratios.over_cap / ratios.tokens,
        "kl_k1": -ratios.mean("d"),
        "kl_k2": ratios.mean("square") / 2.0,
        "kl_k3": ratios.mean("k3"),
        "logprob_difference_abs_mean": ratios.mean("abs"),
        "logprob_difference_abs_max": max(abs(ratios.low), abs(ratios.high)),
        "logprob_correlation": ratios.correlation,
        "effective_sample_size_fraction": ratios.effective_fraction,
    }


def _of_sequences(ratios: Ratios) -> dict[Metric, float]:
    count = np.concatenate(ratios.sequence_tokens)
    total = np.concatenate(ratios.sequence_d)
    total, count = total[count > 0], count[count > 0]
    row = {Metric("posttrain_importance_ratio_sequence_geometric_mean"): float(np.exp(total / count).mean())}
    for q, value in zip(QUANTILES, np.quantile(total, QUANTILES), strict=True):
        row[Metric("posttrain_sequence_log_ratio_quantile", {"quantile": f"{q:g}"})] = float(value)
    return row
