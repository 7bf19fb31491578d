"""Recordings for tests. demo.ndjson.gz: 6 nodes of the demo for 46 s, by
`gpuconsole --demo --nodes 6 --record FILE watch --json`."""
