"""The importance correction: is it on, does its cap hold, what will it do to long sequences.

Formula: with a per-token k3 and T tokens the log of a sequence's product ratio is about N(-v/2, v), v = 2 * T * k3.
The expected weight is then Phi((ln c - v/2) / sqrt v) where weights above the cap c are masked, and more by
c * Phi(-(ln c + v/2) / sqrt v) where they are truncated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from posttrain_watchdog.preflight.finding import Finding
from posttrain_watchdog.preflight.view import View

GUIDE_CAP = 10.0
HEALTHY_K3 = 5e-4
"""k3 of dense bf16 models on good hardware, lower end of the published 5e-4 to 1e-3"""


def expected_weight(tokens: float, k3: float, cap: float, *, masked: bool) -> float:
    """Mean applied sequence weight of a healthy run (1 where nothing is lost); tokens a sequence, k3 a token."""
    v = 2 * tokens * k3
    if v <= 0:
        return 1.0
    root, limit = math.sqrt(v), math.log(cap)
    weight = _phi((limit - v / 2) / root)
    return weight if masked else weight + cap * _phi(-(limit + v / 2) / root)


def judge(trainer: View) -> Iterator[Finding]:
    if not trainer.needs_correction:
        return
    enabled = trainer.truth("is_enabled")
    mode = trainer.text("is_mode")
    level, action = trainer.framework.modes.get(mode, ("", ""))
    if mode and not level and mode not in ("False", "None", "null") and trainer.framework.modes:
        known = ", ".join(sorted(m for m in trainer.framework.modes if m not in ("True", "icepop")))
        yield trainer.finding(
            "correction-mode",
            "critical",
            "is_mode",
            f"`{mode}` is no correction mode of {trainer.version_words}",
            f"The run stops at the start, or goes on uncorrected. Known: {known}.",
        )
    if enabled is False:
        yield from _off(trainer)
        return
    yield from _cap(trainer)
    yield from _bounds(trainer)
    if level == "sequence":
        yield from _length(trainer, masked=action == "mask")
    if mode and level and mode != "sequence_truncate" and "sequence_truncate" in trainer.framework.modes:
        yield trainer.finding(
            "correction-mode",
            "info",
            "is_mode",
            f"the correction mode is {mode}; the guide recommends sequence_truncate",
            "Masking drops what exceeds the cap, truncation keeps it at the cap; token level leaves a bias, "
            "sequence level has variance.",
        )


def _off(trainer: View) -> Iterator[Finding]:
    found = trainer.get("is_enabled")
    given = found is not None and found.given
    yield trainer.finding(
        "correction-off",
        "warning",
        "is_enabled",
        "the importance correction is off" + ("" if given else f" (default of {trainer.version_words})"),
        "Engine and trainer differ even in healthy runs (k3 5e-4 to 1e-3 dense bf16, up to 5e-3 FP8, up to 1e-1 "
        "mixture of "
        "experts); uncorrected, that bias enters every update and is known to collapse runs.",
        fix=_switch_on(trainer),
    )
    given_cap = trainer.get("is_cap")
    if given_cap is not None and given_cap.given:
        yield trainer.finding(
            "correction-off",
            "warning",
            "is_cap",
            f"`{given_cap.key}` is set while the correction is off",
            "The cap has no effect.",
        )


def _switch_on(trainer: View) -> str:
    values: dict[str, tuple[str, str | bool]] = {
        "ms_swift": ("is_mode", "sequence_truncate"),
        "verl": ("is_mode", "token"),
        "skyrl": ("is_mode", "token"),
    }
    name, value = values.get(trainer.framework.name, ("is_enabled", True))
    return trainer.fix(name, value)


def _cap(trainer: View) -> Iterator[Finding]:
    found = trainer.get("is_cap")
    if found is None:
        return
    cap = trainer.number("is_cap")
    if cap is None:
        if found.value is None and trainer.framework.modes.get(trainer.text("is_mode"), ("", ""))[1] == "truncate":
            yield trainer.finding(
                "correction-cap",
                "warning",
                "is_cap",
                "the importance ratio has no upper bound",
                "One token with d = 10 weighs 22,026 times its neighbours; exp overflows at 88.7 in float32.",
                fix=trainer.fix("is_cap", GUIDE_CAP),
            )
        return
    if cap <= 1:
        yield trainer.finding(
            "correction-cap",
            "critical",
            "is_cap",
            f"the cap {cap:g} is not above 1",
            "Half of all healthy ratios lie above 1: every one of them is cut, and the mean weight falls below 1.",
            fix=trainer.fix("is_cap", GUIDE_CAP),
        )
    elif cap > GUIDE_CAP:
        yield trainer.finding(
            "correction-cap",
            "warning",
            "is_cap",
            f"the cap {cap:g} is above the guide's {GUIDE_CAP:g}",
            "The variance of the gradient grows with the square of the cap.",
            fix=trainer.fix("is_cap", GUIDE_CAP),
        )
    elif cap < GUIDE_CAP:
        yield trainer.finding(
            "correction-cap",
            "info",
            "is_cap",
            f"the cap is {cap:g}; the guide recommends {GUIDE_CAP:g}",
            "A lower cap bounds the variance and biases more; the logged mean ratio is taken after it.",
        )


def _bounds(trainer: View) -> Iterator[Finding]:
    floor, cap = trainer.number("is_floor"), trainer.number("is_cap")
    if floor is not None and cap is not None and floor >= min(cap, 1.0):
        yield trainer.finding(
            "correction-cap",
            "critical",
            "is_floor",
            f"the lower bound {floor:g} is not below 1 and the cap {cap:g}",
            "Healthy ratios lie around 1: everything is masked or pushed up.",
        )
    if trainer.framework.name == "slime" and trainer.truth("bypass") and trainer.truth("is_enabled"):
        yield trainer.finding(
            "correction-conflict",
            "warning",
            "bypass",
            "--use-rollout-logprobs takes the engine's logprobs as the "
            "old ones while "
            "--use-tis corrects between the two",
            "With both, the correction's ratio is 1 by construction: nothing is corrected and nothing is seen.",
        )
    elif trainer.truth("bypass"):
        yield trainer.finding(
            "correction-conflict",
            "info",
            "bypass",
            f"`{trainer.key('bypass')}` leaves out the trainer's recompute",
            "Logged mismatch metrics then compare the CURRENT policy with the engine, and dumps hold no logprobs "
            "of their own.",
        )


def _length(trainer: View, *, masked: bool) -> Iterator[Finding]:
    tokens, cap = trainer.number("max_completion"), trainer.number("is_cap")
    if tokens is None or cap is None or cap <= 1 or trainer.framework.sequence_mean == "geometric":
        return
    weight = expected_weight(tokens, HEALTHY_K3, cap, masked=masked)
    if weight >= 0.8:
        return
    lost = f"masks about {1 - weight:.0%} of the weight" if masked else f"shrinks it to {weight:.2f}"
    yield trainer.finding(
        "correction-length",
        "warning",
        "is_mode",
        f"a product over up to {tokens:g} tokens with cap {cap:g} {lost} in a healthy run",
        f"The variance of a sequence's log ratio is 2·T·k3; with k3 {HEALTHY_K3:g} the logged mean ratio will read "
        f"{weight:.2f} "
        "although every token is fine, and the longest completions are hardly trained on.",
        fix=trainer.fix("is_mode", "token_truncate" if "token_truncate" in trainer.framework.modes else "token"),
        cause="length_artefact",
    )


def _phi(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))
