"""Which nodes exist, and who schedules work on them. Imports neither SSH nor Textual."""
