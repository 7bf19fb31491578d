"""An exception as a line of text, and a stderr that may be closed."""

import sys

ERROR_CHARS = 600
"""One line on the operator's screen and some source lines."""


def grumble(text: "str") -> "None":
    """Write to stderr, which may be closed or broken: that must not cost a thread."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass


def trace() -> "str":
    """The traceback of the exception being handled."""
    import traceback  # only when something failed: with what it imports it takes 2.5 ms

    return traceback.format_exc()


def describe(error: "BaseException") -> "str":
    """An exception as one line: what, then the innermost source lines."""
    import traceback

    what = traceback.format_exception_only(type(error), error)[-1].strip()
    steps = [
        "%s:%s %s: %s" % (frame.filename, frame.lineno, frame.name, frame.line)
        for frame in traceback.extract_tb(error.__traceback__)[-3:]
    ]
    return "; ".join([what] + steps[::-1])[:ERROR_CHARS]
