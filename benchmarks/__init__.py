"""Figures of speed and cost. `python -m benchmarks` measures all of them; see README.md."""
