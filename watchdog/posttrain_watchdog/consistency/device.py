"""Where ratios are computed: on a GPU only where one has memory to spare beside the trainer and the engine."""

from __future__ import annotations

RESERVE = 0.2
"""Share of a GPU's memory that stays free (the guide's 20 %)."""


def choose(wanted: str, budget_bytes: int) -> str:
    """cpu or cuda:N. `wanted` other than auto is taken as it is.

    With auto: the GPU with the most free memory, if the budget fits beside the reserve; else the CPU.
    """
    if wanted != "auto":
        return wanted
    import torch

    best, most = "cpu", 0
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(index)
        if free - RESERVE * total >= budget_bytes and free > most:
            best, most = f"cuda:{index}", free
    return best
