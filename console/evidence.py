"""Evidence bundles: what a node showed before it was taken out of work, as one tar.gz a node.

NODE-TIME.tar.gz holds manifest.json (every file with size, SHA-256 and what is missing, and why),
findings.json, facts.json and scheduler.json as this console knew them, and under node/ what the
node itself was asked for. A node that does not answer still gets a bundle of what we knew. Private
to its owner; bundles in the state directory are kept by number, age and size.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import io
import os
import re
import tarfile
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from console.audit import Who, who
from console.settings import private
from inventory.node import Node
from inventory.scheduler import Allocation
from probes.blobs import File, Files, safe_name
from probes.bundle import AgentConfig
from probes.event import Event, Finding, NodeState, NodeStatus, Row, Sample, Severity

if TYPE_CHECKING:
    from console.engine import Engine
    from probes.transport import Transport

LIMIT_S = 45.0
"""For one node: eight commands of 8 s at most would be more, and then what came so far is kept."""
BUG_REPORT_S = 150.0
AT_ONCE = 16
KEEP_DAYS = 90.0
KEEP_PER_NODE = 20
KEEP_BYTES = 4 << 30
"""Retention in the state directory; our estimates. A bundle of eight GPUs is about 200 KB."""
SETTLED = frozenset({
    NodeState.UNREACHABLE, NodeState.AUTH_FAILED, NodeState.HOST_KEY_CHANGED, NodeState.NO_PYTHON,
})  # fmt: skip


PART = ".part"
PART_S = 3600.0
"""A bundle being written for longer was given up by a console that was killed."""
_NAME = re.compile(r"-(\d{8}T\d{6}Z)(?:\.(\d+))?\.tar\.gz$")


class Kept(Struct, frozen=True, kw_only=True):
    """A bundle that was written."""

    node: str
    path: str
    sha256: str
    files: int
    answered: bool
    """Whether the node itself gave its part to the end."""
    note: str = ""
    """Why it did not."""


class Item(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a bundle."""

    name: str
    size_bytes: int
    sha256: str
    note: str = ""


class Manifest(Struct, frozen=True, kw_only=True):
    """manifest.json."""

    schema: int
    node: str
    at: float
    by: Who
    why: str
    verdict: Severity
    answered: bool
    note: str
    files: list[Item]


class Known(Struct, frozen=True, kw_only=True):
    """facts.json: the latest answers and kernel lines that this console has."""

    samples: list[Sample]
    kernel: list[Row]
    status: NodeStatus | None


async def collect(
    engine: Engine,
    names: Iterable[str],
    *,
    why: str,
    into: Path | None = None,
    bug_report: bool = False,
) -> AsyncIterator[Kept]:
    """A bundle for each node, as they come. Raises OSError when none can be written.

    Each node is asked over a connection of its own, so that a stuck session does not matter.
    """
    wanted = list(dict.fromkeys(names))
    target = private(into or engine.bundles)
    gate = asyncio.Semaphore(AT_ONCE)
    transport = engine.transport()

    async def one(name: str) -> Kept:
        async with gate:
            files, note = await _ask(engine, transport, name, bug_report)
        return await asyncio.to_thread(write, engine, name, files, note, why, target)

    tasks = [asyncio.create_task(one(name)) for name in wanted]
    try:
        for done in asyncio.as_completed(tasks):
            yield await done
        if into is None:
            await asyncio.to_thread(retain, target)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await transport.close()


async def _ask(
    engine: Engine, transport: Transport, name: str, bug_report: bool
) -> tuple[dict[str, File], str]:
    """The node's own files, and why they are not all there ("" when they are)."""
    facts = engine.fleet.nodes[name]
    if facts.status is not None and facts.get("hello") is None:
        return {}, f"not asked: {facts.status.text or facts.state.value}"
    dialogue = _Dialogue(facts.node)
    limit_s = LIMIT_S + (BUG_REPORT_S if bug_report else 0.0)
    note = ""
    try:
        async with asyncio.timeout(limit_s):
            note = await dialogue.run(transport, bug_report)
    except TimeoutError:
        note = f"not all of it came within {limit_s:g} s"
    return dialogue.files.taken(), note


class _Dialogue:
    """One agent that is asked for evidence only."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.files = Files()
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self, transport: Transport, bug_report: bool) -> str:
        """Why it ended early; "" when the node sent everything."""
        from probes.session import Session

        config = AgentConfig(root=self.node.root, probes=["agent"], slow_s=5.0)
        session = Session(self.node, transport, config, self._heard, on_blob=self.files.add)
        self._order = {
            "op": "run", "id": "evidence", "what": "evidence", "args": {"bug_report": bug_report},
        }  # fmt: skip
        self._session = session
        task = asyncio.create_task(session.run())
        try:
            return await self._over
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _heard(self, event: Event) -> None:
        if self._over.done():
            return
        if isinstance(event, NodeStatus) and not event.probe:
            if event.state is NodeState.UP and event.reason != "garbage":
                # The talk is greeted before this is told, but the hello Sample comes after it.
                asyncio.get_running_loop().call_soon(self._session.send, self._order)
            elif event.state in SETTLED or event.retry_at is not None:
                self._over.set_result(event.text or event.state.value)
        elif isinstance(event, Sample) and event.probe == "job":
            state = event.values.get("state")
            if state == "done":
                self._over.set_result("")
            elif state in ("failed", "refused"):
                self._over.set_result(str(event.values.get("text", state)))


def write(
    engine: Engine, name: str, files: dict[str, File], note: str, why: str, target: Path
) -> Kept:
    """Write one bundle in one step: it is whole, or it is not there."""
    facts = engine.fleet.nodes[name]
    known = Known(
        samples=list(facts.latest.values()), kernel=list(facts.kernel), status=facts.status
    )
    findings: list[Finding] = engine.fleet.findings[name]
    ours: dict[str, bytes] = {
        "facts.json": _json(known),
        "findings.json": _json(findings),
        "scheduler.json": _json(facts.allocation) if facts.allocation else b"null",
    }
    parts = {name: File(data=data) for name, data in ours.items()}
    parts |= {f"node/{name}": file for name, file in sorted(files.items())}
    manifest = Manifest(
        schema=1, node=name, at=time.time(), by=who(), why=_utf8(why),
        verdict=engine.fleet.verdict(name), answered=bool(files) and not note, note=note,
        files=[
            Item(
                name=part, size_bytes=len(file.data), note=file.note,
                sha256=hashlib.sha256(file.data).hexdigest(),
            )
            for part, file in parts.items()
        ],
    )  # fmt: skip
    packed = {"manifest.json": File(data=_json(manifest)), **parts}
    path, part = _reserved(target, name, manifest.at)
    try:
        raw = _tar(packed, path.name.removesuffix(".tar.gz"), manifest.at)
        _write(path, part, raw)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return Kept(
        node=name, path=str(path), sha256=hashlib.sha256(raw).hexdigest(), files=len(packed),
        answered=manifest.answered, note=note,
    )  # fmt: skip


def _json(value: Struct | list[Finding] | Allocation) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _utf8(text: str) -> str:
    """An argument that is no UTF-8 (lone surrogates) made harmless."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _reserved(target: Path, node: str, at: float) -> tuple[Path, Path]:
    """A name nobody has, and the file that becomes it: of two consoles only one gets each."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
    base = f"{safe_name(node)}-{stamp}"
    for number in range(1000):
        path = target / (f"{base}.{number}.tar.gz" if number else f"{base}.tar.gz")
        part = path.with_name(f".{path.name}{PART}")
        try:
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            continue
        if not path.exists():
            return path, part
        part.unlink(missing_ok=True)
    raise FileExistsError(errno.EEXIST, f"a thousand bundles of {node} in one second", str(target))


def _tar(files: dict[str, File], top: str, at: float) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=6) as tar:
        for name, file in files.items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size, info.mtime, info.mode = len(file.data), int(at), 0o600
            tar.addfile(info, io.BytesIO(file.data))
    return out.getvalue()


def _write(path: Path, part: Path, raw: bytes) -> None:
    with part.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def retain(target: Path, now: float | None = None) -> list[Path]:
    """Remove what is too old or too much, oldest first; what was removed."""
    now = time.time() if now is None else now
    for part in target.glob(f".*-????????T??????Z*{PART}"):
        with contextlib.suppress(OSError):
            if now - part.lstat().st_mtime > PART_S:
                part.unlink()
    found = sorted(target.glob("*-????????T??????Z*.tar.gz"), key=taken, reverse=True)
    per_node: dict[str, int] = {}
    total = 0
    gone: list[Path] = []
    for path in found:
        node = path.name.rpartition("-")[0]
        per_node[node] = per_node.get(node, 0) + 1
        try:
            status = path.lstat()
            total += status.st_size
            old = now - status.st_mtime > KEEP_DAYS * 86400
            if old or per_node[node] > KEEP_PER_NODE or total > KEEP_BYTES:
                path.unlink()
                gone.append(path)
        except OSError:
            continue  # another console was faster, or it is somebody else's
    return gone


def taken(path: Path) -> tuple[str, int]:
    """When a bundle was taken, by its name; several of one second by their number."""
    match = _NAME.search(path.name)
    return (match[1], int(match[2] or 0)) if match else ("", 0)
