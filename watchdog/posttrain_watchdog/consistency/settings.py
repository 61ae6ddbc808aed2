"""What the consistency monitor can be told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Defaults are right for a run of any size on one node."""

    cap: float = 10.0
    """upper bound of the importance ratio, for what it would clip"""
    initial_factor: float = 1.0
    decay_steps: float = 0.0
    """0 keeps the calibration factor constant"""
    correction_freq: int = 100
    correction_window: int = 500
    tokens_per_step: int = 0
    """tokens of a step that are measured at most, sequences drawn evenly; 0: all"""
    judged_tokens_per_step: int = 8192
    """tokens of a step that the causes judge, in whole sequences"""
    judged_tokens: int = 131_072
    """tokens of all steps of a window that the causes judge: a tenth of a second"""
    judged_steps: int = 64
    """steps whose tokens are kept for the causes"""
    history_steps: int = 4096
    """steps whose sums are kept"""
    device: str = "cpu"
    """where ratios are computed: cpu, or cuda:N where the daemon found memory to spare"""
