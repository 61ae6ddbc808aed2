"""From windows of tokens to named causes: every cause judges every window, and what one explains the others need not.

Promises: pure; the same windows give the same diagnoses. Never names a cause that no file of causes/ names, except
`unknown` for what is left.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module

import numpy as np

from posttrain_watchdog.consistency import causes
from posttrain_watchdog.consistency.chance import clustered_mean, normal_tail
from posttrain_watchdog.consistency.finding import Finding, accounts_for, confidence, looks
from posttrain_watchdog.consistency.onset import onset
from posttrain_watchdog.consistency.window import Window
from posttrain_watchdog.model import Diagnosis

Judge = Callable[[Window], "Finding | None"]
ALOUD = 0.5
"""confidence from which a cause is said"""
WORTH_TELLING = 0.05
"""confidence below which a cause is not listed at all"""
UNUSABLE = 1e-2
"""nats of k3 from which two dense policies are unusable for training (Liu et al., in the public record)"""


@cache
def judges() -> Mapping[str, Judge]:
    """cause -> its judge: the files of causes/ are the registry."""
    names = sorted(m.name for m in pkgutil.iter_modules(causes.__path__))
    return {name: import_module(f"{causes.__name__}.{name}").judge for name in names}


def diagnose(windows: Iterable[Window], steps_seen: int) -> list[Diagnosis]:
    """The causes that the windows show, most confident first; at most one diagnosis a cause.

    A cause is as sure as in the window that shows it best, and began at the earliest onset of the windows that show
    it at least half as well.
    Explaining away: a cause keeps the part that the most confident cause of a lower tier does not account for; and
    mechanisms that claim the same differences share them out, the best first (`_left_by_better`).
    """
    windows = list(windows)
    shown: dict[str, list[tuple[float, Finding, Window, float]]] = {}
    for window in windows:
        correction = looks(steps_seen, len(window.steps), len(windows))
        findings = [f for judge in judges().values() if (f := judge(window)) is not None]
        if (rest := _unknown(window)) is not None:
            findings.append(rest)
        findings += _of_the_affected(window, findings, correction)
        for finding in findings:
            taken = accounts_for(finding, correction)
            shown.setdefault(finding.cause, []).append((confidence(finding, correction), finding, window, taken))
    best = {cause: max(each, key=lambda e: e[0]) for cause, each in shown.items()}
    taken_by = [0.0, 0.0, 0.0]
    for each in shown.values():
        for _, finding, _, taken in each:
            if finding.tier < 2:
                taken_by[finding.tier] = max(taken_by[finding.tier], taken)
    scale = {c: 1.0 - max(taken_by[: f.tier], default=0.0) for c, (_, f, *_) in best.items()}
    left = _left_by_better({c: max(e[3] for e in shown[c]) for c, (_, f, *_) in best.items() if f.claims_differences})
    if "unknown" in best:
        # what some cause would explain is not unknown, even before that cause is sure
        claimed = max(
            (f.explained for each in shown.values() for _, f, *_ in each if f.cause != "unknown"), default=0.0
        )
        scale["unknown"] = 1.0 - min(1.0, claimed)
    found = []
    for cause, (sure, finding, window, _) in best.items():
        kept = min(sure * scale[cause], left.get(cause, 1.0))
        if kept >= WORTH_TELLING:
            onsets = [_onset(f, w) for c, f, w, _ in shown[cause] if c >= sure / 2.0]
            found.append(_diagnosis(kept, finding, window, min(onsets)))
    return sorted(found, key=lambda d: (-d.confidence, d.cause))


def _left_by_better(taken: Mapping[str, float]) -> dict[str, float]:
    """cause -> the part of the differences that no better explanation of them has taken.

    What two mechanisms explain together is at most everything. Two faults at once each keep their part; the same
    differences explained twice are left to the one that explains more of them.
    """
    rest, left = 1.0, {}
    for cause in sorted(taken, key=lambda c: (-taken[c], c)):
        left[cause] = rest
        rest = max(0.0, rest - taken[cause])
    return left


def _of_the_affected(window: Window, findings: Iterable[Finding], correction: float) -> list[Finding]:
    """The mechanism that the diverging sequences show among themselves, where something tells which they are.

    The history is the whole run's and stays out of it.
    """
    which = next((f for f in findings if f.affected is not None and confidence(f, correction) >= ALOUD), None)
    if which is None or which.affected is None:
        return []
    alone = Window(window.batch.select(np.flatnonzero(which.affected)))
    share = float(which.evidence["share_of_sequences"])
    told = f"in {share:.0%} of the sequences, told by {which.evidence['told_by']} (mostly {which.evidence['value']}): "
    found = []
    for judge in judges().values():
        finding = judge(alone)
        if finding is not None and finding.tier == 0 and confidence(finding, correction) >= ALOUD:
            extra = {k: which.evidence[k] for k in ("share_of_sequences", "told_by", "value")}
            found.append(
                replace(
                    finding,
                    summary=told + finding.summary,
                    evidence={**finding.evidence, **extra},
                    labels=which.labels,
                    step_scores=which.step_scores,
                )
            )
    return found


def _onset(finding: Finding, window: Window) -> int:
    first = onset(finding.step_scores)
    return window.steps[0] if first is None else first


def _unknown(window: Window) -> Finding | None:
    """The two sides differ by more than any healthy pair: k3 above UNUSABLE beyond its sampling error."""
    if len(window.d) < 32:
        return None
    d = np.clip(window.d, -20.0, 20.0)
    k3 = np.minimum(np.expm1(d) - d, 1e3)
    mean, error = clustered_mean(k3, window.of)
    if mean <= UNUSABLE:
        return None
    return Finding(
        "unknown",
        normal_tail((mean - UNUSABLE) / max(error, 1e-12)),
        1.0 - UNUSABLE / mean,
        f"trainer and engine differ (k3 {mean:.3f} +- {error:.3f}) and no known cause explains it",
        {"k3": mean, "k3_stderr": error},
        (
            "logprobs mode of the engine is processed_logprobs",
            "score one sequence by hand on both sides, token by token",
            "rerun one step with temperature 1 and no truncation or penalties",
        ),
        len(window.d),
        window.per_step(k3 - UNUSABLE, window.at_step),
        tier=3,
    )


def _diagnosis(sure: float, finding: Finding, window: Window, first: int) -> Diagnosis:
    return Diagnosis(
        finding.cause,
        round(sure, 4),
        finding.summary,
        dict(finding.evidence),
        finding.first_checks,
        first_step=first,
        last_step=window.steps[-1],
        tokens=finding.tokens,
        labels=finding.labels,
    )
