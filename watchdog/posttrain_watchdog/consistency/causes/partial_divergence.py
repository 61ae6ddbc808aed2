"""Only some sequences diverge, and something they share (a prompt, a length, a replica) tells which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.consistency.chance import normal_tail
from posttrain_watchdog.consistency.divergence import Diverging, at_baseline, diverging
from posttrain_watchdog.consistency.finding import Finding
from posttrain_watchdog.consistency.grouping import partitions, purity
from posttrain_watchdog.consistency.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHECKS = (
    "send one of the diverging sequences alone, eager mode: does it still diverge, and on which side",
    "what the diverging ones share (named in the evidence): that replica's weights, that prompt, that kernel path",
    "version and flags of the engine, replica by replica",
)
_SHUFFLES = 24


def judge(window: Window) -> Finding | None:
    """Sequences fall into two classes by their mean |d|, far apart, and a property they carry predicts the class.

    Against chance: the property's values are shuffled over the sequences; the best of all properties is compared
    with the best of all shuffled ones, so trying many costs what it should.
    """
    split: Diverging | None = diverging(window)
    if split is None or not split.sequences.any() or split.sequences.all():
        return None
    tried = partitions(window)
    # steps without a diverging sequence (before the onset) say nothing about which of them diverge
    live = np.isin(window.batch.step[split.rows], window.batch.step[split.rows[split.sequences]])
    rows, upper = split.rows[live], split.sequences[live]
    if not tried or upper.all():
        return None
    scores = [purity(each.code[rows], upper) for each in tried]
    best = int(np.argmax(scores))
    if scores[best] <= 0.0:
        return None
    hit = np.zeros(window.batch.sequences, np.bool_)
    hit[rows[upper]] = True
    share = float(upper.mean())
    level = split.level[live]
    others = at_baseline(window, float(np.exp(level[~upper]).mean()))
    explained = scores[best] * split.sequences_apart * others * window.share(window.clean & hit[window.sequence])
    if explained < 0.05:
        return None
    random = np.random.default_rng(0)
    chance = np.array(
        [max(purity(each.code[random.permutation(rows)], upper) for each in tried) for _ in range(_SHUFFLES)]
    )
    # beyond the resolution of the shuffles the tail is taken as normal
    z = (scores[best] - chance.mean()) / (chance.std(ddof=1) + 1e-6)
    name, value = tried[best].name, _commonest(tried[best].code[hit], tried[best].values)
    apart = float(np.exp(level[upper].mean() - level[~upper].mean()))
    return Finding(
        "partial_divergence",
        normal_tail(float(z)),
        explained,
        f"{int(hit.sum())} of {len(rows)} sequences differ {apart:.0f} times as much as the others, and "
        f"{name} tells which (mostly {value})",
        {
            "sequences": int(hit.sum()),
            "share_of_sequences": share,
            "times_as_much": apart,
            "told_by": name,
            "value": value,
            "share_of_variance_between": scores[best],
        },
        CHECKS,
        len(window.d),
        window.hits_per_step(hit),
        tier=1,
        affected=hit,
        labels=((name, value),) if name not in {"prompt", "group"} else (),
    )


def _commonest(code: NDArray[np.int64], values: list[str]) -> str:
    known = code[code >= 0]
    return values[int(np.bincount(known).argmax())] if len(known) else ""
