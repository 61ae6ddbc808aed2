"""Trainer against engine, token by token: ratios, signatures, and the cause they name. Knows nothing of files."""
