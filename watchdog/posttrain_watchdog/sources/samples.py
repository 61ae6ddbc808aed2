"""Completions as dumps of rollouts hold them: reward, length, prompt and text, without two sides to compare.

Promises: what a record says becomes numbers at once; prompts and texts are never kept, and nothing in them is ever
taken for a metric. A value that is no number counts as one that is not finite, and hides no other. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from posttrain_watchdog.sources.trainers.completions import degenerate

if TYPE_CHECKING:
    from numpy.typing import NDArray

ABSENT: Any = object()
"""In place of a reward: the record has none, as against one that is null or NaN."""
_LARGEST_STEP = 2**53
_EVALUATION = frozenset({"val", "valid", "validation", "eval", "evals", "evaluation"})
_WORD = re.compile(r"[a-z]+")


class Sample(NamedTuple):
    """What one record says of one completion, as it stands there."""

    step: Any
    reward: Any = ABSENT
    length: Any = None
    """tokens of the completion"""
    truncated: bool | None = None
    """cut by the length limit; None: the record does not say"""
    prompt: Any = None
    """text or id: samples of one prompt are a group"""
    text: Any = None


@dataclass(slots=True)
class Samples:
    """S completions of one step, or of a part of it."""

    step: int
    reward: NDArray[np.float64]
    """[S] NaN where there is none, or none that is finite"""
    length: NDArray[np.float64]
    """[S] tokens, NaN unknown"""
    truncated: NDArray[np.float64]
    """[S] 1 cut by the length limit, 0 not, NaN unknown"""
    group: NDArray[np.int64]
    """[S] the same number for the same prompt, -1 unknown"""
    invalid: int = 0
    """rewards that are null, NaN, infinite or no number"""
    degenerate: dict[str, int] = field(default_factory=dict)
    """how texts are none any more ("empty", "repeats") -> how many"""
    examples: dict[str, str] = field(default_factory=dict)
    """the beginning of one of them each"""
    texts: int = 0
    lineage: str = ""
    attempt: int = 0
    reading: int = 0
    """as those of TokenBatch"""


def by_step(samples: Iterable[Sample]) -> Iterator[Samples]:
    """A part for each step, ascending. Raises ValueError where a step is none (see `step_of`)."""
    steps: dict[int, list[Sample]] = {}
    for sample in samples:
        steps.setdefault(step_of(sample.step), []).append(sample)
    for step in sorted(steps):
        yield _columns(step, steps[step])


def step_of(value: object) -> int:
    """The step that a record says. Raises ValueError for what cannot be one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST_STEP:
        raise ValueError(f"expected a step, got {str(value)[:40]!r}")
    return value


def of_evaluation(folder: str) -> bool:
    """Whether a folder's name says that what lies in it is no training: validation_rollouts, eval-rollout, val."""
    return not _EVALUATION.isdisjoint(_WORD.findall(folder.lower()))


def _columns(step: int, samples: list[Sample]) -> Samples:
    given = [s.reward is not ABSENT for s in samples]
    reward = np.array([_finite(s.reward) for s in samples], np.float64)
    found = Samples(
        step,
        reward,
        np.array([_finite(s.length) for s in samples], np.float64),
        np.array([math.nan if s.truncated is None else float(s.truncated) for s in samples], np.float64),
        np.array([_group(s.prompt) for s in samples], np.int64),
        invalid=int((np.isnan(reward) & np.array(given, np.bool_)).sum()),
    )
    for sample in samples:
        if isinstance(sample.text, str):
            found.texts += 1
            how = degenerate(sample.text)
            if how:
                found.degenerate[how] = found.degenerate.get(how, 0) + 1
                found.examples.setdefault(how, sample.text[:60])
    return found


def _finite(value: object) -> float:
    """A number; NaN for what is none or not finite."""
    if not isinstance(value, (int, float, str)):
        return math.nan
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def _group(prompt: object) -> int:
    if prompt is None:
        return -1
    digest = blake2b(str(prompt).encode("utf-8", "surrogatepass"), digest_size=7)
    return int.from_bytes(digest.digest(), "big")
