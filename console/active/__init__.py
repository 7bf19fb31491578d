"""Active tests: what to run where, in which order, and what the figures mean."""
