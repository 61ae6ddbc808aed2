"""Do the two sides hold the same tokens: ids and lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from posttrain_watchdog.consistency.window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray


def uneven_lengths(window: Window) -> NDArray[np.bool_]:
    """[S] both lengths are known and differ; a side that holds nothing at all is missing, not shorter."""
    engine, trainer = window.batch.engine_length, window.batch.trainer_length
    if engine is None or trainer is None:
        return np.zeros(window.batch.sequences, np.bool_)
    uneven: NDArray[np.bool_] = (engine > 0) & (trainer > 0) & (engine != trainer)
    return uneven


def different_tokens(window: Window) -> NDArray[np.bool_] | None:
    """[T] both sides have an id here and the two differ; None where one side has no ids."""
    ours, theirs = window.batch.token_ids, window.batch.engine_token_ids
    if ours is None or theirs is None:
        return None
    differs: NDArray[np.bool_] = (ours >= 0) & (theirs >= 0) & (ours != theirs)
    return differs


def differing_ids(window: Window) -> NDArray[np.bool_] | None:
    """[S] sequences with at least one differing id; None where one side has no ids."""
    tokens = different_tokens(window)
    return None if tokens is None else window.owners(tokens)
