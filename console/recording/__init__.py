"""Recordings: NDJSON of Events, written beside the screen or by `watch --json`, and played again.

Recorded findings are dropped and judged again. All but `tape` and `recorder` work in recorded time.
"""
