"""The account that acts, as the system knows it."""

from __future__ import annotations

import os
import pwd


def account() -> str:
    """Its name, or number where it has none; $USER and its like can say anything."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
