"""The embedded cluster: real ssh, the real agent, simulated hardware. The door: `cluster.py`."""
