"""An evidence bundle through `gpuconsole diagnose`: what was found, and what changed."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from console import evidence
from console.diagnose.bundle import opened
from console.diagnose.command import diagnose
from console.engine import Engine
from console.settings import Settings
from inventory.node import Inventory, Node
from probes.blobs import File
from probes.event import Action, Finding, Severity
from tests.diagnose.support import about, part, rules

XID = b"[ 9103.456789] NVRM: Xid (PCI:0000:43:00): 79, pid=1, name=python3, GPU has fallen off\n"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """gpu1 with a warning on record and an Xid in its kernel log."""
    engine = Engine(Inventory(nodes=(Node(name="gpu1"),), source="t"), Settings(), schedulers={})
    engine.fleet.findings["gpu1"] = [
        Finding(rule="remap.pending", severity=Severity.WARN, node="gpu1", device="0000:1b:00.0",
                say="GPU0: row remap pending", action=Action.RESET_GPU)
    ]  # fmt: skip
    files = {"dmesg.txt": File(data=XID), "proc_meminfo.txt": File(data=b"MemTotal: 1 kB\n")}
    return Path(evidence.write(engine, "gpu1", files, "", "slow", tmp_path).path)


def changed(path: Path, name: str, data: bytes | None) -> Path:
    """The bundle with one file replaced, or left out."""
    other = path.with_name("changed.tar.gz")
    with tarfile.open(path) as old, tarfile.open(other, "w:gz") as new:
        for member in old:
            file = old.extractfile(member)
            assert file is not None
            raw = file.read()
            if member.name.endswith(name):
                if data is None:
                    continue
                raw, member.size = data, len(data)
            new.addfile(member, io.BytesIO(raw))
    return other


def test_what_was_found_and_what_the_files_say(bundle: Path) -> None:
    found = diagnose(opened(str(bundle)))
    assert found.verdict is Severity.CRITICAL
    assert {one.kind for one in found.inputs} == {"evidence", "kernel-log"}
    assert about(found, "remap.pending").node == "gpu1"
    assert about(found, "xid.79").device.startswith("0000:43:00")
    told = part(found, "evidence")
    assert told.facts["why"] == "slow"
    assert told.facts["node"] == "gpu1"


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("node/dmesg.txt", b"[1.0] all is well\n", "node/dmesg.txt was changed"),
        ("node/dmesg.txt", None, "node/dmesg.txt is missing"),
        ("findings.json", b"[]\n", "findings.json was changed"),
    ],
)
def test_a_file_that_is_not_what_the_manifest_says(
    bundle: Path, name: str, data: bytes | None, says: str
) -> None:
    found = diagnose(opened(str(changed(bundle, name, data))))
    assert about(found, "evidence.changed").say == says


def test_an_untouched_one_says_nothing_of_the_kind(bundle: Path) -> None:
    assert "evidence.changed" not in rules(diagnose(opened(str(bundle))))


def test_another_archive_is_not_recognised(tmp_path: Path) -> None:
    path = tmp_path / "other.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("x/readme.txt")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"hi\n"))
    found = diagnose(opened(str(path)))
    assert found.verdict is Severity.UNKNOWN
    assert found.inputs[0].kind == ""


@pytest.mark.parametrize("size", [0, 1, 30, 300, 900])
def test_a_bundle_that_was_cut_short_is_never_ok(bundle: Path, size: int) -> None:
    bundle.write_bytes(bundle.read_bytes()[:size])
    assert diagnose(opened(str(bundle))).verdict.rank > Severity.INFO.rank
