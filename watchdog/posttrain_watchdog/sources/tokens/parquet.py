"""The native form as Parquet: one sequence a row, lists in the columns, the names of native.py.

Promises: reads the columns that it knows and row group by row group; what has other columns (a table of texts) is
not accepted. Raises ValueError for a file that is damaged or not yet whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posttrain_watchdog.model import TokenBatch
from posttrain_watchdog.sources.tokens import native
from posttrain_watchdog.sources.tokens.sheet import Record


def accepts(path: Path) -> bool:
    with path.open("rb") as file:
        if file.read(4) != b"PAR1":
            return False
    try:
        return native.recognises(_shape(path))
    except ValueError:
        return False  # its footer is not written yet, or never will be


def read_file(path: Path) -> TokenBatch:
    """All sequences of the file. Raises OSError, ValueError."""
    from pyarrow import parquet

    shape = _shape(path)
    with parquet.ParquetFile(path) as file:
        records: list[Record] = []
        for group in range(file.num_row_groups):
            records += file.read_row_group(group, columns=list(shape)).to_pylist()
    return native.from_records(records)


def _shape(path: Path) -> dict[str, Any]:
    """Column names, with an empty list for those that hold lists."""
    import pyarrow
    from pyarrow import parquet

    try:
        schema = parquet.read_schema(path)
    except pyarrow.ArrowException as error:
        raise ValueError(f"damaged Parquet: {error}") from None
    lists = (pyarrow.types.is_list, pyarrow.types.is_large_list)
    return {field.name: [] if any(is_one(field.type) for is_one in lists) else 0 for field in schema}
