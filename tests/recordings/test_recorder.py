"""Writing recordings: what is in them, and what trouble costs."""

from __future__ import annotations

import gzip
import io
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.recording import recorder as module
from console.recording.course import Course
from console.recording.recorder import Recorder
from console.recording.tape import Tape, inventory_of
from inventory.errors import UsageError
from probes.event import Event, Sample, decoder
from probes.rules import load_rules
from tests.recordings.test_seeking import course, on

ENDINGS = ("ndjson", "ndjson.gz")


def sample(number: int) -> Sample:
    """One Event of some 100 bytes."""
    return Sample(node="n1", probe="host", at=1000.0 + number, values={"load1": number})


def events(path: Path) -> list[Event]:
    """All lines of a file."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as file:
        return [decoder.decode(line) for line in file]


def until(true: Callable[[], bool]) -> None:
    """Wait for a condition; the test's timeout is the deadline."""
    while not true():
        time.sleep(0.005)


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_event_in_its_order_for_the_owner_only(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"run.{ending}"
    recorder = Recorder(path)
    told = [sample(number) for number in range(1000)]
    for event in told:
        recorder.tap(event)
    recorder.close()
    assert events(path) == told
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert recorder.trouble == ""
    assert recorder.written == path.stat().st_size or ending.endswith("gz")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is only slow is waited for."""
    monkeypatch.setattr(module, "CLOSE_S", 200.0)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("mine")
    with pytest.raises(UsageError, match="replaces nothing"):
        Recorder(path)
    assert path.read_text() == "mine"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError):
        Recorder(link)
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(UsageError, match="No such file"):
        Recorder(tmp_path / "no" / "folder")


@pytest.mark.parametrize("ending", ENDINGS)
def test_it_stops_at_its_size_and_says_so(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"run.{ending}"
    recorder = Recorder(path, most_bytes=20_000)
    for number in range(1000):
        recorder.tap(sample(number))
    recorder.close()
    assert recorder.ended
    assert "stopped: it has its 19.5K" in recorder.trouble
    assert path.stat().st_size <= 20_000
    found = events(path)
    assert found == [sample(number) for number in range(len(found))]
    assert len(found) > 100
    recorder.tap(sample(0))
    assert not recorder._waiting, "nothing piles up behind a recording that ended"


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file of this process may have more than 10,000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_costs_the_recording_only(tmp_path: Path) -> None:
    path = tmp_path / "run"
    recorder = Recorder(path)
    for number in range(1000):
        recorder.tap(sample(number))
    recorder.close()
    assert "stopped: File too large" in recorder.trouble
    told: list[str] = []
    found = [event for event, _ in Tape(path, told.append).events()]
    assert found == [sample(number) for number in range(len(found))]
    assert found
    assert "cut short" in told[0]


class Slow(io.BytesIO):
    """A disk that takes nothing until it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()

    def write(self, data: object) -> int:
        self.may.wait()
        return super().write(data)  # type: ignore[arg-type]


def test_a_slow_disk_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tap` returns while the disk hangs; what does not fit in memory is lost and counted."""
    disk = Slow()
    monkeypatch.setattr(module, "_new", lambda _path: disk)
    monkeypatch.setattr(module, "WAITING_MOST", 10_000)
    monkeypatch.setattr(module, "FLUSH_S", 0.001)
    recorder = Recorder(tmp_path / "run")
    recorder.tap(sample(0))
    until(lambda: not recorder._waiting)
    for number in range(1, 1000):
        recorder.tap(sample(number))
    assert len(recorder._waiting) <= 10_000
    assert "Events lost, the disk is too slow" in recorder.trouble
    disk.may.set()
    recorder.close()


CHILD = """
import sys, time
from pathlib import Path
from console.recording import recorder
from tests.recordings.test_recorder import sample
recorder.FLUSH_S = 0.01
one = recorder.Recorder(Path(sys.argv[1]))
number = 0
while True:
    one.tap(sample(number))
    number += 1
    if one.written > 5000:
        print("go", flush=True)
    time.sleep(0.0001)
"""


@pytest.mark.parametrize("ending", ENDINGS)
def test_killed_it_can_be_read_up_to_where_it_came(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"run.{ending}"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, cwd=Path.cwd()
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"go\n"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    found = [event for event, _ in Tape(path).events()]
    assert len(found) > 40
    assert found == [sample(number) for number in range(len(found))]


def test_begun_amid_things_it_knows_what_was_known(tmp_path: Path) -> None:
    """A node's inventory is told every 5 minutes: a short recording must not lack it."""
    live = course()
    while live.second < 20:
        on(live)
    path = tmp_path / "late.ndjson"
    recorder = Recorder(path, known=live.fleet.nodes.values())
    apply = live.fleet.apply

    def tapped(event: Event) -> None:
        apply(event)
        recorder.tap(event)

    live.fleet.apply = tapped  # type: ignore[method-assign]
    until(lambda: not recorder._known)
    for _ in range(6):
        on(live)
    recorder.close()
    tape = Tape(path)
    span = tape.span()
    again = Course(tape, span.start, inventory_of(path, span.names), load_rules(None))
    while not again.ended:
        on(again)
    assert span.end - span.start < 10, "what was known takes no time of the replay"
    assert span.names == tuple(live.fleet.nodes)
    for name, facts in live.fleet.nodes.items():
        other = again.fleet.nodes[name]
        assert other.latest == facts.latest
        assert other.status == facts.status
        assert other.allocation == facts.allocation
        assert list(other.kernel) == list(facts.kernel)
    assert again.fleet.verdict("gpu005") == live.fleet.verdict("gpu005")
