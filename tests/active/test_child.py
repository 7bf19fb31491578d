"""Programs that follow a run: their lines, their limits, their end."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from console.active import child
from console.active.child import LINE_BYTES, follow
from tests.processes import alive, gone


async def test_lines_come_as_printed_and_long_ones_in_pieces() -> None:
    lines: list[str] = []
    text = f"import sys; print('a'); print('b' * {3 * LINE_BYTES}); sys.stderr.write('last')"
    done = await follow([sys.executable, "-c", text], {}, lines.append, 60.0)
    assert done == (0, False)
    assert lines[0] == "a"
    assert "".join(lines).count("b") == 3 * LINE_BYTES
    assert max(map(len, lines)) <= 2 * LINE_BYTES
    assert "last" in lines[-1]


async def test_the_environment_is_added_to_ours() -> None:
    lines: list[str] = []
    code = "import os; print(os.environ['NCCL_X'], 'PATH' in os.environ); raise SystemExit(7)"
    done = await follow([sys.executable, "-c", code], {"NCCL_X": "a,b"}, lines.append, 60.0)
    assert done == (7, False)
    assert lines == ["a,b True"]


async def test_past_its_limit_it_is_ended_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    script = f"sleep 600 & echo $! $$ > {note}; wait"
    done = await follow(["sh", "-c", script], {}, lambda line: None, 10.0)
    assert done == (-1, True)
    assert gone([int(pid) for pid in note.read_text().split()])


async def test_cancelled_it_ends_the_program_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "END_S", 60.0)  # it ends when told to, be the machine busy
    pids: list[int] = []
    seen = asyncio.Event()

    def line(text: str) -> None:
        pids.append(int(text))
        seen.set()

    task = asyncio.create_task(follow(["sh", "-c", "echo $$; exec sleep 600"], {}, line, 60.0))
    await seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(pids[0])


async def test_what_cannot_be_started_is_an_oserror() -> None:
    with pytest.raises(OSError, match="nowhere"):
        await follow([os.path.join("/nowhere", "srun")], {}, lambda line: None, 1.0)
