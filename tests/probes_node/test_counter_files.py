"""Counter files: kept open, re-read, and left alone once they fail."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.demo import sysfs
from probes.node import counter_files
from probes.node.counter_files import REST_S, CounterFiles


class Clock:
    """Monotonic seconds that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def files(clock: Clock) -> Iterator[CounterFiles]:
    made = CounterFiles(clock)
    yield made
    made.close()


def test_values_are_read_anew(tmp_path: Path, files: CounterFiles) -> None:
    sysfs.write(tmp_path, "c/link_downed", "1\n")
    assert files.read(str(tmp_path / "c")) == {"link_downed": 1}
    sysfs.write(tmp_path, "c/link_downed", "18446744073709551615\n")
    assert files.read(str(tmp_path / "c")) == {"link_downed": 2**64 - 1}


def test_a_replaced_file_is_opened_again(tmp_path: Path, files: CounterFiles) -> None:
    sysfs.write(tmp_path, "c/x", "1\n")
    files.read(str(tmp_path / "c"))
    sysfs.write(tmp_path, "new", "2\n")
    (tmp_path / "new").replace(tmp_path / "c/x")
    assert files.read(str(tmp_path / "c")) == {"x": 2}


def test_a_device_that_goes_and_comes_back(tmp_path: Path, files: CounterFiles) -> None:
    sysfs.write(tmp_path, "c/x", "1\n")
    files.read(str(tmp_path / "c"))
    (tmp_path / "c/x").unlink()
    assert files.read(str(tmp_path / "c")) == {}
    sysfs.write(tmp_path, "c/x", "5\n")
    assert files.read(str(tmp_path / "c")) == {"x": 5}


def test_text_and_emptiness_are_absent(tmp_path: Path, files: CounterFiles) -> None:
    sysfs.write(tmp_path, "c/a", "N/A (no PMA)\n")
    sysfs.write(tmp_path, "c/b", "7\n")
    sysfs.write(tmp_path, "c/c", "")
    assert files.read(str(tmp_path / "c")) == {"b": 7}
    sysfs.write(tmp_path, "c/c", "8\n")
    assert files.read(str(tmp_path / "c")) == {"b": 7, "c": 8}


def test_an_error_puts_one_file_to_rest(tmp_path: Path, files: CounterFiles, clock: Clock) -> None:
    """A directory in a file's place fails to be read, as EINVAL would."""
    sysfs.write(tmp_path, "c/a", "1\n")
    (tmp_path / "c/b").mkdir()
    assert files.read(str(tmp_path / "c")) == {"a": 1}
    (tmp_path / "c/b").rmdir()
    sysfs.write(tmp_path, "c/b", "2\n")
    assert files.read(str(tmp_path / "c")) == {"a": 1}
    clock.now += REST_S
    assert files.read(str(tmp_path / "c")) == {"a": 1, "b": 2}


def test_a_directory_of_errors_is_left_alone(
    tmp_path: Path, files: CounterFiles, clock: Clock
) -> None:
    """Two failed reads, not twenty-one, and then none for an hour."""
    for name in "abcdef":
        (tmp_path / "c" / name).mkdir(parents=True)
    assert files.read(str(tmp_path / "c")) == {}
    for name in "abcdef":
        (tmp_path / "c" / name).rmdir()
        sysfs.write(tmp_path, f"c/{name}", "1\n")
    assert files.read(str(tmp_path / "c")) == {}
    clock.now += REST_S
    assert files.read(str(tmp_path / "c")) == dict.fromkeys("abcdef", 1)


def test_after_two_failures_the_rest_is_not_tried(tmp_path: Path, files: CounterFiles) -> None:
    (tmp_path / "c/a").mkdir(parents=True)
    (tmp_path / "c/b").mkdir()
    sysfs.write(tmp_path, "c/c", "1\n")
    assert files.read(str(tmp_path / "c")) == {}


def test_more_files_than_may_stay_open(
    tmp_path: Path, files: CounterFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_files, "OPEN_FILES", 2)
    for number in range(5):
        sysfs.write(tmp_path, f"c/{number}", f"{number}\n")
    for _ in range(2):
        assert files.read(str(tmp_path / "c")) == {str(n): n for n in range(5)}
    sysfs.write(tmp_path, "c/4", "44\n")
    assert files.read(str(tmp_path / "c"))["4"] == 44


def test_files_in_the_making_are_not_counters(tmp_path: Path, files: CounterFiles) -> None:
    sysfs.write(tmp_path, "c/.x.new", "1\n")
    assert files.read(str(tmp_path / "c")) == {}
    assert files.read(str(tmp_path / "absent")) == {}


def test_a_forgotten_reader_keeps_no_file_open(tmp_path: Path, clock: Clock) -> None:
    for number in range(20):
        sysfs.write(tmp_path, f"c/counter{number}", "1\n")
    reader = CounterFiles(clock)
    assert len(reader.read(str(tmp_path / "c"))) == 20
    held = [link for link in Path("/proc/self/fd").iterdir() if _points_into(link, tmp_path)]
    assert len(held) == 20
    del reader
    gc.collect()
    assert not [link for link in Path("/proc/self/fd").iterdir() if _points_into(link, tmp_path)]


def _points_into(link: Path, folder: Path) -> bool:
    try:
        return str(link.readlink()).startswith(str(folder))
    except OSError:
        return False
