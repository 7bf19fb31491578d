"""An evidence bundle (`gpuconsole evidence`) as inputs: its manifest, then the files worth reading.

Files of the node that hold no judgement (mounts, memory, versions) are there for people.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterator
from typing import Any

from console.diagnose.text import Input, open_input

MARK = "gpuconsole_evidence"
"""Key of the synthetic document that stands for manifest and findings."""
MEMBERS = 200
MEMBER_BYTES = 64 << 20
READ = re.compile(
    r"node/(?:dmesg|kernel-this-boot|nvidia-smi|nvidia-smi-q|nvlink-status|nvlink-errors|topo"
    r"|lspci|ibstat|processes)\.txt"
)
"""What the readers know. The kernel log of the last boot is history: it is not judged as now."""


def opened(name: str) -> Iterator[Input]:
    """The input itself, or all that a bundle of ours holds. Raises UsageError with one line."""
    files = None if name == "-" else _members(name)
    if files is None or "manifest.json" not in files:
        yield open_input(name)
        return
    yield Input(name, io.BytesIO(_summary(files)))
    for member, raw in files.items():
        if READ.fullmatch(member) and raw.strip():
            yield Input(f"{name}:{member}", io.BytesIO(raw))


def _members(name: str) -> dict[str, bytes] | None:
    """Files of a tar.gz below its one folder; None when it is something else."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(name, "r:gz") as tar:
            for member in tar:
                inner = member.name.partition("/")[2]
                if len(found) >= MEMBERS or not inner or not member.isfile():
                    continue
                file = tar.extractfile(member)
                found[inner] = file.read(MEMBER_BYTES) if file else b""
                if "manifest.json" not in found:
                    return None
    except (OSError, tarfile.TarError, EOFError, gzip.BadGzipFile, ValueError):
        return found or None
    return found


def _summary(files: dict[str, bytes]) -> bytes:
    """Manifest, recorded findings, and which files are not what the manifest says."""
    manifest = _json(files["manifest.json"])
    listed = manifest.get("files", []) if isinstance(manifest, dict) else []
    promised = {
        str(item.get("name")): str(item.get("sha256")) for item in listed if isinstance(item, dict)
    }
    differ = {
        part: "is missing" if part not in files else "was changed"
        for part, digest in promised.items()
        if hashlib.sha256(files.get(part, b"")).hexdigest() != digest
    }
    differ |= dict.fromkeys(files.keys() - promised.keys() - {"manifest.json"}, "was added")
    document = {
        MARK: manifest if isinstance(manifest, dict) else {},
        "differ": differ,
        "findings": _json(files.get("findings.json", b"[]")),
    }
    return json.dumps(document).encode()


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
