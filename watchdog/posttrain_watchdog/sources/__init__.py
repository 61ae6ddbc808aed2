"""Where data comes from: one file a dialect, found by a registry."""
