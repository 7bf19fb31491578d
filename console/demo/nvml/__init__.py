"""A simulated NVML library object and the shim that puts it where ctypes would load the real one.

Python 3.6 syntax and the standard library only: these files run inside the node's interpreter.
"""
