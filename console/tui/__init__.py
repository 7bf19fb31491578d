"""The screen. Imported by the command line only, and only when a person is there to look."""
