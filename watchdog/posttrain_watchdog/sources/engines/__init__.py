"""Inference engines: their metrics, their logs, their answers, and what their versions mean."""
