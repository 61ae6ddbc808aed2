"""Ratios and KLs against float64 arithmetic, overflow, masks, and what a step adds up to."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain_watchdog.consistency.calibration import Recommendation, calibration_factor, recommended_cap
from posttrain_watchdog.consistency.importance import affected_fractions, sequence_weights
from posttrain_watchdog.consistency.ratios import Ratios, measure
from posttrain_watchdog.consistency.settings import Settings
from posttrain_watchdog.consistency.sketch import Sketch
from posttrain_watchdog.model import TokenBatch


def batch_of(
    t: np.ndarray, s: np.ndarray, mask: np.ndarray | None = None, lengths: list[int] | None = None
) -> TokenBatch:
    lengths = lengths or [len(t)]
    return TokenBatch(
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        engine_logprobs=s.astype(np.float32),
        trainer_logprobs=t.astype(np.float32),
        mask=np.ones(len(t), np.bool_) if mask is None else mask,
        step=np.zeros(len(lengths), np.int64),
    )


def test_sums_agree_with_float64_over_many_chunks() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 3000, 120).tolist()
    n = sum(lengths)
    s = -rng.exponential(1.0, n).astype(np.float32)
    t = (s + rng.normal(0, 0.3, n)).astype(np.float32)
    mask = rng.random(n) < 0.8
    got = measure(batch_of(t, s, mask, lengths))
    d = (t.astype(np.float64) - s)[mask]
    assert got.tokens == got.masked == mask.sum()
    assert got.ratio_mean == pytest.approx(np.exp(d).mean(), rel=1e-6)
    assert got.mean("reverse") == pytest.approx(np.exp(-d).mean(), rel=1e-6)
    assert got.mean("k3") == pytest.approx((np.expm1(d) - d).mean(), rel=1e-5)
    assert got.mean("square") == pytest.approx((d * d).mean(), rel=1e-5)
    assert got.correlation == pytest.approx(np.corrcoef(t[mask], s[mask])[0, 1], rel=1e-4)
    assert got.effective_fraction == pytest.approx(np.exp(d).sum() ** 2 / len(d) / np.exp(2 * d).sum(), rel=1e-5)
    owner = np.repeat(np.arange(120), lengths)[mask]
    assert np.concatenate(got.sequence_d) == pytest.approx(np.bincount(owner, d, 120), abs=1e-3)
    assert np.concatenate(got.sequence_tokens).tolist() == np.bincount(owner, minlength=120).tolist()
    for q in (0.05, 0.5, 0.95):
        assert got.sketch.quantile(q) == pytest.approx(np.quantile(d, q), rel=0.05, abs=0.005)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(-1e4, 5, width=32) | st.sampled_from([math.nan, -math.inf, math.inf, -9999.0]),
            st.floats(-1e4, 5, width=32) | st.sampled_from([math.nan, -math.inf]),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_nothing_overflows_and_every_token_is_accounted_for(pairs: list[tuple[float, float]]) -> None:
    t, s = np.array([p[0] for p in pairs], np.float32), np.array([p[1] for p in pairs], np.float32)
    got = measure(batch_of(t, s))
    assert got.tokens + got.unscored + got.non_finite == got.masked == len(pairs)
    assert np.isfinite(got.sums).all()


def test_batches_of_one_step_add_up() -> None:
    rng = np.random.default_rng(1)
    s = -rng.exponential(1.0, 400)
    t = s + rng.normal(0, 0.1, 400)
    whole = measure(batch_of(t, s, lengths=[100] * 4))
    parts = Ratios()
    for a in (0, 200):
        parts.add(measure(batch_of(t[a : a + 200], s[a : a + 200], lengths=[100] * 2)))
    assert parts.ratio_mean == pytest.approx(whole.ratio_mean, rel=1e-9)
    assert parts.standard_error(parts.sequence_ratio, parts.ratio_mean) == pytest.approx(
        whole.standard_error(whole.sequence_ratio, whole.ratio_mean), rel=1e-6
    )


def test_corrections_clip_and_drop_what_their_definitions_say() -> None:
    d = np.array([3.0, 0.1, 0.1, 0.1, -3.0, 0.1, 1.0, 1.5])
    got = affected_fractions(measure(batch_of(d, np.zeros(8), lengths=[4, 4])), cap=10.0)
    assert got["token_truncate"] == got["token_mask"] == 1 / 8
    assert got["reject_token"] == 2 / 8
    assert got["icepop"] == 2 / 8
    # sums are 3.3 and -0.4: only the first product is above 10
    assert got["sequence_truncate"] == got["sequence_mask"] == got["reject_sequence"] == 1 / 2
    assert got["reject_geometric"] == 1.0


@pytest.mark.parametrize(("v", "masked"), [(0.2, 0.99), (1.0, 0.73), (2.0, 0.53), (8.0, 0.15)])
def test_the_masked_mean_of_long_sequences_is_predicted_from_length_and_k3(v: float, masked: float) -> None:
    """The figures of the public record for TRL's cap of 3."""
    rng = np.random.default_rng(2)
    length = 400
    d = rng.normal(-v / length / 2, math.sqrt(v / length), (4000, length)).ravel()
    observed, predicted = sequence_weights(measure(batch_of(d, np.zeros(len(d)), lengths=[length] * 4000)), 3.0)["mask"]
    assert predicted == pytest.approx(masked, abs=0.02)
    assert observed == pytest.approx(predicted, abs=0.04)


def test_the_calibration_factor_decays_and_never_exceeds_one() -> None:
    schedule = Settings(initial_factor=1.5, decay_steps=100.0)
    assert calibration_factor(0, schedule) == 1.0
    assert calibration_factor(200, schedule) == pytest.approx(1.5 * math.exp(-2))
    assert calibration_factor(10**6, Settings(initial_factor=0.7)) == 0.7


def test_a_recommendation_comes_every_hundred_steps_and_brings_the_mean_to_one() -> None:
    rng = np.random.default_rng(3)
    advice = Recommendation(Settings())
    d = np.log(0.8) + rng.normal(0, 0.01, 500)
    step = measure(batch_of(d, np.zeros(500)))
    for _ in range(99):
        advice.observe(step)
    assert math.isnan(advice.factor)
    advice.observe(step)
    assert advice.factor * step.ratio_mean == pytest.approx(1.0, rel=1e-6)
    assert advice.cap == math.inf


def test_heavy_ratios_get_a_cap_that_keeps_the_sample_effective() -> None:
    sketch = Sketch()
    sketch.feed(np.concatenate([np.zeros(990), np.full(10, 8.0)]).astype(np.float32))
    cap = recommended_cap(sketch, 0.5)
    assert 5.0 < cap < 40.0
    weight = np.concatenate([np.ones(990), np.full(10, cap)])
    assert weight.sum() ** 2 / 1000 / (weight**2).sum() >= 0.45
