"""From logs, events, engine, GPUs and kernel together to named causes at the level of the run."""
