"""What can be wrong with an expression or its evaluation."""

from __future__ import annotations


class PromQLError(ValueError):
    """An expression that cannot be parsed or evaluated.

    `line` and `column` count from 1 and are None where the fault is in the data rather than in the text.
    """

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        self.message = message
        self.line = line
        self.column = column
        super().__init__(message if line is None else f"{line}:{column}: {message}")
