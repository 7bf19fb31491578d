"""Whole nodes with one thing wrong, or nothing: simulated hardware, real probes, real judging."""
