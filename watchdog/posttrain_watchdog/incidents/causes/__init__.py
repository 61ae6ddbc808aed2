"""One file a cause; the file's name is the cause (a leading word before `__` is only for order)."""
