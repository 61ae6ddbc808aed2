"""TRL's completions/*.parquet (`log_completions=True`): one small file a step, written whole.

Columns step, prompt, completion, a column a reward function, advantage (trl 0.21 to 1.16; from 1.16 on prompt and
completion are lists of messages). Never reads more than the step and completion columns.
"""

from __future__ import annotations

from pathlib import Path

from posttrain_watchdog.model import Event
from posttrain_watchdog.sources.trainers.completions import judge, texts_of

_NEEDED = {"step", "completion", "prompt"}


def accepts(path: Path) -> bool:
    """Whether this is such a file; False for every other Parquet file."""
    with path.open("rb") as file:
        if file.read(4) != b"PAR1":
            return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = set(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return False
    return names >= _NEEDED and "token_ids" not in names


def read_file(path: Path) -> list[Event]:
    """An event for each step whose completions are degenerate. Raises ValueError for a half-written file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, columns=["step", "completion"]).to_pydict()
    except pa.ArrowException as error:
        raise ValueError(f"expected a Parquet file of completions: {error}") from None
    steps: dict[int, list[str]] = {}
    for step, value in zip(table["step"], table["completion"], strict=True):
        steps.setdefault(int(step), []).append(texts_of(value))
    return [event for step in sorted(steps) for event in judge(steps[step], step)]
