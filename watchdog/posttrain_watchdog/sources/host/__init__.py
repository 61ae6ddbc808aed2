"""This machine: GPUs, kernel log, processes."""
