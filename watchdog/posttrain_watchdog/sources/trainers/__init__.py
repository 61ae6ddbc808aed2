"""Log dialects of trainers: one file each, found by its name. Parsing is pure; nothing here opens a file."""
