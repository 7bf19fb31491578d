"""`gpuconsole diagnose`: the console's eyes on paper, for what people paste into tickets.

A reader per format turns text into facts and findings; where the live console has a check for it
the very same check judges (offline.py), so that paper and live never disagree.
"""

from __future__ import annotations

from console.diagnose.command import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]
