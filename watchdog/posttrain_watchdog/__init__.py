"""Watches RL post-training runs and names the root cause when trainer and engine disagree."""

__version__ = "0.1.0"
