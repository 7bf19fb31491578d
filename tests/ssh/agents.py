"""Scripted agents: executables that stand where a node's python3 would, and misbehave on purpose.

They take the real command line and the real payload on stdin, find the session's marker in it, and
then write whatever the test wants a node to write.
"""

from __future__ import annotations

import textwrap

from tests.ssh.lab import Lab

PREAMBLE = """\
#!{python} -S
import json, os, sys, time, zlib
if "sys.exit" in sys.argv[-1]:
    sys.exit(0)  # the probe for a usable interpreter
def block():
    return sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))
block(); config = json.loads(zlib.decompress(block())); block(); block()
marker = config["marker"].encode()
def raw(data):
    os.write(1, data)
def put(data):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]
def frame(**fields):
    put(marker + b" " + json.dumps(fields).encode() + b"\\n")
def hello(**fields):
    base = dict(k="hello", v=1, host="node", python="3.11", pid=os.getpid(), uid=1000, boot_id="b",
                wall=time.time(), mono=time.monotonic(), kernel="6", os="x", caps=["host"],
                missing={{}})
    frame(**dict(base, **fields))
def tick(probe="host", devices=None, rows=(), **more):
    answer = devices if devices is not None else {{"": {{"load1": 1.0}}}}
    frame(k="s", p=probe, t=time.monotonic(), d=answer, r=list(rows), **more)
def end():
    frame(k="end", t=time.monotonic())
def until_eof():
    while os.read(0, 65536):
        pass
"""


class Agents:
    """Makes scripted agents inside a lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._count = 0

    def script(self, body: str) -> str:
        """Path of an executable that behaves as `body` says (see PREAMBLE for its words)."""
        self._count += 1
        text = PREAMBLE.format(python="/usr/bin/python3") + textwrap.dedent(body)
        return self._lab.script(f"agent-{self._count}", text)
