"""What the fleet was like before: samples thinned, findings, tests, drains, boots, in SQLite."""
