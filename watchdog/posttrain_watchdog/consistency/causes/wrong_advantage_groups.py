"""Advantages are normalised over the wrong groups: group means are not 0."""

from __future__ import annotations

import numpy as np

from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.window import Window

CHECKS = (
    "group by prompt id, not by a fixed stride of group_size",
    "what happens to failed or filtered episodes: does a group that lost a member shift all later ones",
    "are rows shuffled or resharded between reward and advantage",
)
_CENTRED = 0.01
"""of the advantages' spread: a mean that the normalisation itself (an epsilon, six digits) leaves"""


def judge(window: Window) -> Finding | None:
    """Within a step some groups with a spread have advantages that add up to 0, and others have not.

    Subtracting a group's own mean leaves exactly 0; a step in which no group adds up uses another baseline and says
    nothing. By chance a group of other rows adds up to 0 rarely, so one that does shows what the baseline is.
    """
    group, advantage, step = window.batch.group, window.batch.advantage, window.batch.step
    if group is None or advantage is None:
        return None
    centred_steps = wrong_groups = right_groups = rows = 0
    hit = np.zeros(window.batch.sequences, np.bool_)
    raw = 0
    for each in np.unique(step):
        at = (step == each) & (group >= 0) & np.isfinite(advantage)
        if at.sum() < 4:
            continue
        spread = float(advantage[at].std())
        if spread <= 0:
            continue
        right, wrong = [], []
        for g in np.unique(group[at]):
            members = np.flatnonzero(at & (group == g))
            values = advantage[members].astype(np.float64)
            if len(members) < 2:
                continue
            off = abs(float(values.mean())) > max(0.05, _CENTRED * spread)
            if off:
                wrong.append(members)
            elif float(values.std()) > _CENTRED * spread:
                right.append(members)
        if right and wrong:
            centred_steps += 1
            wrong_groups += len(wrong)
            right_groups += len(right)
            for members in wrong:
                hit[members] = True
                rows += len(members)
        if window.batch.reward is not None and wrong:
            chosen = np.concatenate(wrong)
            raw += int((np.abs(advantage[chosen] - window.batch.reward[chosen]) < 1e-6).sum())
    if not wrong_groups:
        return None
    return Finding(
        "wrong_advantage_groups",
        0.0,
        wrong_groups / (wrong_groups + 1),
        f"{wrong_groups} groups have advantages that do not add up to 0 while those of {right_groups} groups of the "
        f"same steps do; {raw} advantages equal the raw reward",
        {
            "groups_off": wrong_groups,
            "groups_centred": right_groups,
            "steps": centred_steps,
            "sequences": rows,
            "equal_to_raw_reward": raw,
        },
        CHECKS,
        window.batch.tokens,
        window.hits_per_step(hit),
    )
