"""One file a cause: `judge(window) -> Finding | None`. The file is the registry: its name is the cause."""
