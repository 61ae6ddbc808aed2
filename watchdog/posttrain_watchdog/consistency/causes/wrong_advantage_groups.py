"""Advantages are normalised over the wrong groups: group means are not 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.consistency.finding import Finding, counted
from posttrain_watchdog.consistency.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHECKS = (
    "group by prompt id, not by a fixed stride of group_size",
    "what happens to failed or filtered episodes: does a group that lost a member shift all later ones",
    "are rows shuffled or resharded between reward and advantage",
)
_CENTRED = 1e-3
"""of the advantages' spread: a mean that the normalisation itself leaves, written with four digits or more"""
_UNEQUAL = 1e-2
"""of the advantages' spread: more than rounding makes of equal advantages"""


def judge(window: Window) -> Finding | None:
    """Within a step some groups have advantages that add up to 0, and others have not and contradict themselves.

    Subtracting a group's own mean leaves exactly 0, and gives rows of equal reward equal advantages. That a mean is
    not 0 says nothing alone: another baseline may be in use, or the dump may hold only some rows of each group. Equal
    rewards with unequal advantages in one group, where groups that add up have none, cannot come from either.
    """
    batch = window.batch
    group, advantage, reward, step = batch.group, batch.advantage, batch.reward, batch.step
    if group is None or advantage is None or reward is None:
        return None
    wrong_groups = right_groups = contradictory = raw = steps = 0
    hit = np.zeros(batch.sequences, np.bool_)
    for each in np.unique(step):
        at = (step == each) & (group >= 0) & np.isfinite(advantage) & np.isfinite(reward)
        spread = float(advantage[at].std()) if at.sum() >= 4 else 0.0
        if spread <= 0:
            continue
        right, wrong = _sorted_out(group, advantage, at, spread)
        if not right or any(_contradicts(reward, advantage, members, spread) for members in right):
            continue
        steps += bool(wrong)
        right_groups += len(right)
        wrong_groups += len(wrong)
        for members in wrong:
            hit[members] = True
            contradictory += _contradicts(reward, advantage, members, spread)
            raw += int((np.abs(advantage[members] - reward[members]) < 1e-6).sum())
    if not contradictory:
        return None
    return Finding(
        "wrong_advantage_groups",
        0.0,
        counted(wrong_groups, wrong_groups),
        f"{wrong_groups} groups have advantages that do not add up to 0 while those of {right_groups} groups of the "
        f"same steps do; in {contradictory} of them rows of equal reward have unequal advantages; {raw} advantages "
        "equal the raw reward",
        {
            "groups_off": wrong_groups,
            "groups_centred": right_groups,
            "groups_contradicting": contradictory,
            "steps": steps,
            "sequences": int(hit.sum()),
            "equal_to_raw_reward": raw,
        },
        CHECKS,
        batch.tokens,
        window.hits_per_step(hit),
    )


def _sorted_out(
    group: NDArray[np.int64], advantage: NDArray[np.float32], at: NDArray[np.bool_], spread: float
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """(groups whose advantages add up to 0, groups whose do not), each of two rows or more that differ."""
    right, wrong = [], []
    for g in np.unique(group[at]):
        members = np.flatnonzero(at & (group == g))
        values = advantage[members].astype(np.float64)
        if len(members) < 2 or float(values.std()) <= _CENTRED * spread:
            continue
        mean = abs(float(values.mean()))
        if mean <= _CENTRED * spread:
            right.append(members)
        elif mean > 0.05 * spread:
            wrong.append(members)
    return right, wrong


def _contradicts(
    reward: NDArray[np.float32], advantage: NDArray[np.float32], members: NDArray[np.int64], spread: float
) -> bool:
    """Whether rows of one group have equal rewards and unequal advantages."""
    ordered = members[np.lexsort((advantage[members], reward[members]))]
    same = np.diff(reward[ordered]) == 0
    return bool((np.diff(advantage[ordered].astype(np.float64))[same] > _UNEQUAL * spread).any())
