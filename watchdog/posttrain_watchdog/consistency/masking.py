"""How the completion mask lies over what the engine sampled, sequence by sequence.

A token is sampled unless the engine's value says that it was not (Window.unscored_runs). Where mask and sampling
agree, a sequence is in no class; otherwise it is in exactly one:

    shifted      sampled tokens masked out at the front, and as many unsampled ones masked in behind the end; or the
                 same at the borders of turns that the engine did not sample
    padding      unsampled tokens masked in behind the end token
    appended     one unsampled token masked in at the end, the same id everywhere, and no end token before it
    tools        unsampled tokens masked in between sampled ones, or a tail of several kinds of token
    prompt       unsampled tokens masked in at the front
    end_dropped  the last sampled token is masked out, everything before it counts
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.consistency.finding import Finding, counted
from posttrain_watchdog.consistency.tokenisation import uneven_lengths
from posttrain_watchdog.consistency.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLASSES = ("shifted", "padding", "appended", "tools", "prompt", "end_dropped")


@dataclass(slots=True)
class Masking:
    """Sequences by class, and the tokens that make them so."""

    hit: dict[str, NDArray[np.bool_]]
    """class -> [S]"""
    odd_tokens: NDArray[np.int64]
    """[S] unsampled tokens under the mask"""
    counted: int
    """sequences with a mask and at least one sampled token"""
    ended: int
    """of these, sequences whose last sampled token is the end token"""

    @property
    def odd(self) -> int:
        """sequences in any class"""
        return int(sum(h.sum() for h in self.hit.values()))


def masking(window: Window) -> Masking:
    batch, n = window.batch, window.batch.sequences
    masked = batch.mask
    sampled = ~window.unsampled & (window.both | window.non_finite)
    front, back = _ends(window, sampled)
    mask_front, mask_back = _ends(window, masked)
    # where the sides differ in length, a missing tail is the length's fault
    usable = (back >= 0) & (mask_back >= 0) & ~uneven_lengths(window)
    bad = masked & window.unsampled
    odd = np.bincount(window.sequence[bad], minlength=n)
    middle = np.zeros(n, np.bool_)
    inside = bad & (window.position > front[window.sequence]) & (window.position < back[window.sequence])
    middle[window.sequence[inside]] = True
    lead_in = np.where(usable, np.maximum(front - mask_front, 0), 0)
    lead_out = np.where(usable, np.maximum(mask_front - front, 0), 0)
    tail_in = np.where(usable, np.maximum(mask_back - back, 0), 0)
    tail_out = np.where(usable, np.maximum(back - mask_back, 0), 0)

    last, tail, mixed = _tail_ids(window, back, tail_in)
    end_token = _mode(last[usable & (tail_out <= 1)])
    tail_token = _mode(tail[tail_in > 0])
    ends = usable & (last == end_token) if end_token is not None else np.zeros(n, np.bool_)
    out = np.bincount(window.sequence[sampled & ~masked], minlength=n)
    # a mask moved by k loses k sampled tokens wherever it gains k unsampled ones: at both ends, and at every turn
    shifted = usable & (odd > 0) & (out > 0) & (np.abs(odd - out) <= np.maximum(1, lead_out))
    shifted &= (lead_out == tail_in) | middle
    rest = usable & ~shifted
    tools = rest & (middle | ((tail_in > 1) & mixed & ~ends))
    behind = rest & ~tools & (tail_in > 0)
    appended = behind & (tail_in == 1) & ~ends & (tail == tail_token) & (end_token != tail_token)
    if end_token is not None and tail_token == end_token:
        # the id that ends other sequences, sampled there and not here
        appended |= behind & (tail_in == 1) & ~ends
    prompt = rest & ~tools & ~behind & (lead_in > 0)
    dropped = rest & (tail_out == 1) & (odd == 0) & (lead_out == 0)
    if _drops_any_last(dropped, ends, usable, tail_out=tail_out, step=batch.step):
        shifted |= dropped
        dropped = np.zeros(n, np.bool_)
    else:
        dropped &= ends
    hit = dict(zip(CLASSES, (shifted, behind & ~appended, appended, tools, prompt, dropped), strict=True))
    return Masking(hit, odd, int(usable.sum()), int(ends.sum()))


def _drops_any_last(
    dropped: NDArray[np.bool_],
    ends: NDArray[np.bool_],
    usable: NDArray[np.bool_],
    *,
    tail_out: NDArray[np.int64],
    step: NDArray[np.int64],
) -> bool:
    """Do sequences that do not end with the end token lose their last one too: a shift to the left, not an end lost."""
    others = usable & ~ends & np.isin(step, step[dropped])
    return bool(others.any() and dropped.any() and (tail_out[others] == 1).mean() > 0.5)


def _ends(window: Window, chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """([S] first, [S] last) position of the chosen tokens; last is -1 where there is none."""
    first = window.lengths.copy()
    last = np.full(window.batch.sequences, -1, np.int64)
    places = np.flatnonzero(chosen)
    owner, position = window.sequence[places], window.position[places]
    np.minimum.at(first, owner, position)
    np.maximum.at(last, owner, position)
    return first, last


def _tail_ids(
    window: Window, back: NDArray[np.int64], tail_in: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """([S] id of the last sampled token, [S] id right behind it, [S] is the tail made of several ids); -1 unknown."""
    n, ids, offsets = window.batch.sequences, window.batch.token_ids, window.batch.offsets
    last, tail, mixed = np.full(n, -1, np.int64), np.full(n, -1, np.int64), np.zeros(n, np.bool_)
    if ids is None:
        return last, tail, mixed
    known = back >= 0
    last[known] = ids[(offsets[:-1] + back)[known]]
    for i in np.flatnonzero(tail_in > 0):
        behind = ids[offsets[i] + back[i] + 1 : offsets[i] + back[i] + 1 + tail_in[i]]
        tail[i], mixed[i] = behind[0], bool((behind != behind[0]).any())
    return last, tail, mixed


def _mode(ids: NDArray[np.int64]) -> int | None:
    """The commonest known id, if half of them are that one."""
    ids = ids[ids >= 0]
    if not len(ids):
        return None
    values, counts = np.unique(ids, return_counts=True)
    best = int(np.argmax(counts))
    return int(values[best]) if counts[best] * 2 >= len(ids) else None


def mask_finding(window: Window, cause: str, kind: str, what: str, checks: tuple[str, str, str]) -> Finding | None:
    """The sequences of class `kind` as a finding.

    Exact zeros and nulls do not occur by chance, so p is 0, but where sampling is truncated. What it explains is the
    share of this class among the sequences that are odd in any way, counted so that one sequence alone is no
    proof.
    An end token that never counts is judged against the sequences that have one.
    """
    pattern: Masking = window.remember("masking", masking)
    hit = pattern.hit[kind]
    count = int(hit.sum())
    if not count:
        return None
    among = max(pattern.odd, pattern.ended) if kind == "end_dropped" else pattern.odd
    tokens = int(pattern.odd_tokens[hit].sum())
    return Finding(
        cause,
        window.unscored_by_chance,
        counted(count, among),
        f"{what}: {count} of {pattern.counted} sequences"
        + (f", {tokens} tokens with {window.share(window.unsampled):.0%} of all difference" if tokens else ""),
        {
            "sequences": count,
            "of_sequences": pattern.counted,
            "unsampled_tokens_under_mask": tokens,
            "share_of_difference": window.share(window.unsampled),
        },
        checks,
        int(window.batch.mask.sum()),
        window.hits_per_step(hit),
    )
