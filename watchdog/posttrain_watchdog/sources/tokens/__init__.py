"""Token-level dumps: one file a form, with `recognises(record)` and `read(lines)`, or `accepts` and `read_file`."""
