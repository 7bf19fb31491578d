"""What the real dmesg and journalctl print, in all of their forms, is read as one event each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from probes.event import Severity
from tests.diagnose.support import facts, findings, ticket

XID = "NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
LINES = (
    (6, 1.5, "usb 1-1: new high-speed USB device number 2 using xhci_hcd"),
    (3, 9103.456789, XID),
    (4, 9104.0, "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN"),
    (4, 9111.0, "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE"),
)
PLACES = ("/lib/systemd", "/usr/lib/systemd")
REMOTE = shutil.which("systemd-journal-remote", path=os.pathsep.join(PLACES)) or ""


def output(*argv: str, **given: object) -> str:
    """What the program prints with the C locale and UTC."""
    env = {**os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, **given)  # type: ignore[call-overload]
    return str(done.stdout)


def assert_told(text: str, *, timed: bool) -> None:
    """One Xid 79 and one link that was away for seven seconds."""
    found = ticket(text)
    by_rule = {finding.rule: finding for finding in findings(found)}
    assert by_rule.keys() == {"xid.79", "kernel_log.mlx5"}, text
    assert by_rule["xid.79"].severity is Severity.CRITICAL
    assert by_rule["xid.79"].count == 1
    assert facts(found)["events"] == 3
    if timed:
        (flap,) = facts(found)["adapters"]
        assert (flap["kind"], flap["down_s"]) == ("link_flap", 7.0)


DMESG = {
    "plain": [], "ctime": ["-T"], "notime": ["-t"], "reltime": ["-e"], "delta": ["-d"],
    "decoded": ["-x"], "raw": ["-r"], "json": ["-J"], "iso": ["--time-format", "iso"],
    "format delta": ["--time-format", "delta"], "format reltime": ["--time-format", "reltime"],
    "format ctime": ["--time-format", "ctime"], "format notime": ["--time-format", "notime"],
    "decoded iso": ["-x", "--time-format", "iso"], "ctime delta": ["-T", "-d"],
    "decoded ctime": ["-x", "-T"], "coloured": ["--color=always"],
    "coloured decoded": ["--color=always", "-x", "-T"], "prefixed": ["-p"],
}  # fmt: skip
UNTIMED = {"notime", "format notime", "reltime", "format reltime", "format delta"}
"""Minutes and differences are no clock: what came when is told by the order only."""


@pytest.mark.skipif(shutil.which("dmesg") is None, reason="no dmesg here")
@pytest.mark.parametrize("form", DMESG)
def test_every_form_of_dmesg(form: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.write_text("".join(f"<{p}>[{at:12.6f}] {text}\n" for p, at, text in LINES))
    try:
        said = output("dmesg", "-F", str(saved), *DMESG[form])
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this dmesg does not know {DMESG[form]}: {error.stderr.strip()[:80]}")
    assert_told(said, timed=form not in UNTIMED)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of one boot, written by systemd's own writer."""
    if not REMOTE or shutil.which("journalctl") is None:
        pytest.skip("systemd-journal-remote or journalctl is not installed")
    path = tmp_path_factory.mktemp("journal") / "system.journal"
    boot, entries = "a" * 32, []
    for number, (prio, at, text) in enumerate(LINES):
        wall = 1772501603000000 + int(at * 1e6)
        entries.append(
            f"__CURSOR=s={'b' * 32};i={number + 1:x};b={boot};m={int(at * 1e6):x};t={wall:x};x=1\n"
            f"__REALTIME_TIMESTAMP={wall}\n__MONOTONIC_TIMESTAMP={int(at * 1e6)}\n_BOOT_ID={boot}\n"
            f"_TRANSPORT=kernel\nPRIORITY={prio}\nSYSLOG_IDENTIFIER=kernel\n_HOSTNAME=gpu-a01\n"
            f"_SOURCE_MONOTONIC_TIMESTAMP={int(at * 1e6)}\nMESSAGE={text}\n\n"
        )
    output(REMOTE, "-o", str(path), "-", input="".join(entries))
    return path


JOURNAL = (
    "short", "short-precise", "short-full", "short-iso", "short-iso-precise", "short-unix",
    "short-monotonic", "with-unit", "verbose", "export", "json", "json-pretty", "json-sse", "cat",
)  # fmt: skip


@pytest.mark.parametrize("form", JOURNAL)
def test_every_form_of_journalctl(form: str, journal: Path) -> None:
    said = output("journalctl", "--file", str(journal), "--no-pager", "-o", form)
    assert re.search("NVRM", said), "the journal was not written"
    assert_told(said, timed=form != "cat")
    if form != "cat":
        assert facts(ticket(said))["hosts"] == ["gpu-a01"]


def test_two_readers_of_one_kernel_are_one_log(journal: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.write_text("".join(f"<{p}>[{at:12.6f}] {text}\n" for p, at, text in LINES))
    ring = output("dmesg", "-F", str(saved))
    iso = output("journalctl", "--file", str(journal), "--no-pager", "-o", "short-iso-precise")
    found = ticket(f"### dmesg\n{ring}### journalctl\n{iso}")
    assert facts(found)["events"] == 3
    assert facts(found)["copies_by_other_readers"] == 3
    assert facts(found)["boot_at"] == "2026-03-03T01:33:23Z"
