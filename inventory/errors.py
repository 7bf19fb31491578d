"""The error tree of the whole product.

ConsoleError            anything worth one line to the operator
├── UsageError          wrong input: what, where (file:line), what to write instead; exit 64
└── SchedulerError      the scheduler refused, is down or answered nonsense
"""

from __future__ import annotations


class ConsoleError(Exception):
    """One line for the operator, with an optional hint about the next step."""

    def __init__(self, what: str, hint: str = "") -> None:
        """Keep the sentence and the hint apart so that JSON output can carry both."""
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        """Sentence and hint on one line."""
        return f"{self.what} ({self.hint})" if self.hint else self.what


class UsageError(ConsoleError):
    """Input the operator can correct. Printed as one line; the process exits 64."""

    def __init__(self, what: str, *, where: str = "", instead: str = "") -> None:
        """`where` is file:line or the option's name, `instead` what to write."""
        text = f"{where}: {what}" if where else what
        super().__init__(f"{text}; {instead}" if instead else text)
        self.where = where
        self.instead = instead


class SchedulerError(ConsoleError):
    """The scheduler could not be asked, or refused."""
