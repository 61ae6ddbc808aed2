"""Token-level dumps: one file a form, with `recognises(record)` and `read(lines)`, or `accepts` and `read_file`.

What holds rewards, lengths or texts of completions says them by `sample(record)` or `samples_of_file(path)`; a form
that has nothing else is `ONE_SIDED`.
"""
