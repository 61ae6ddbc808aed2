"""Imported by a trainer that writes no token dump of its own: `Recorder` writes one. Needs numpy and nothing else."""

from posttrain_watchdog.recorder.record import Recorder

__all__ = ["Recorder"]
