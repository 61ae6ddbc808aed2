"""Which attempt of a run a file belongs to, told by its folder: a resumed run opens the next one.

NeMo-RL: `exp_NNN` (utils/logger.py, get_next_experiment_dir); ms-swift: `vN-YYYYMMDD-HHMMSS`
(swift/utils/utils.py, add_version_to_work_dir). Pure: looks at names only.
"""

from __future__ import annotations

import re
from pathlib import Path

_FOLDER = re.compile(r"exp_(\d{1,9})|v(\d{1,9})-\d{8}-\d{6}")


def of(path: Path) -> tuple[str, int]:
    """(lineage, number of the attempt) of a file, ("", 0) where no folder says."""
    for folder in path.parents:
        named = _FOLDER.fullmatch(folder.name)
        if named is not None:
            return str(folder.parent), int(named[1] or named[2])
    return "", 0
