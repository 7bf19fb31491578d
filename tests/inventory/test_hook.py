"""The site's own drain commands: a real program with state on disk, and what may go wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from inventory import run
from inventory.errors import SchedulerError, UsageError
from inventory.hook import HookScheduler
from inventory.hosts import load
from inventory.node import Hook
from inventory.run import LocalRun
from inventory.scheduler import MARKER, Step

POOL = """\
import json, os, sys
path, verb, *names = sys.argv[1:]
state = json.load(open(path))
if state.get("broken") == verb:
    sys.exit("pool: the database is locked")
if verb == "state":
    for name in names:
        if name in state["nodes"]:
            print(name, *state["nodes"][name])
else:
    state["calls"].append([verb, *names])
    if not state.get("ignores"):
        state["nodes"][names[0]] = ["drained", names[1]] if verb == "out" else ["idle", ""]
    json.dump(state, open(path, "w"))
"""


class Pool:
    """The site's program and what it knows."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "pool.json"
        program = folder / "pool.py"
        program.write_text(POOL)
        self.state: dict[str, object] = {
            "nodes": {
                "n1": ["idle"], "n2": ["allocated"], "n3": ["drained", "bad", "DIMM"],
                "n4": ["drained"],
            },
            "calls": [],
        }  # fmt: skip
        self.save()
        base = (sys.executable, str(program), str(self.path))
        self.hook = Hook(
            state=(*base, "state", "{nodes}"),
            drain=(*base, "out", "{node}", "{reason}"),
            resume=(*base, "in", "{node}"),
        )
        self.scheduler = HookScheduler(LocalRun(), self.hook, ["n1", "n2", "n3", "n4", "n5"])

    def save(self) -> None:
        self.path.write_text(json.dumps(self.state))

    def read(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.path.read_text())
        return found


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return Pool(tmp_path)


async def final(steps: AsyncIterator[Step]) -> dict[str, Step]:
    return {step.node: step async for step in steps}


async def test_states(pool: Pool) -> None:
    seen = {a.node: a for a in await pool.scheduler.allocations()}
    assert {n: a.state for n, a in seen.items()} == {
        "n1": "idle", "n2": "allocated", "n3": "drained", "n4": "drained", "n5": "unknown",
    }  # fmt: skip
    assert seen["n3"].reason == "bad DIMM"


async def test_drain_and_resume(pool: Pool) -> None:
    done = await final(pool.scheduler.drain(["n1", "n5"], "xid 79"))
    assert {n: s.phase for n, s in done.items()} == {"n1": "done", "n5": "refused"}
    (seen,) = await pool.scheduler.allocations(["n1"])
    assert (seen.state, seen.reason, seen.ours) == ("drained", f"{MARKER} xid 79", True)
    done = await final(pool.scheduler.resume(["n1", "n2", "n3", "n4"]))
    assert {n: s.phase for n, s in done.items()} == {
        "n1": "done", "n2": "done", "n3": "refused", "n4": "refused",
    }  # fmt: skip
    assert pool.read()["calls"] == [["out", "n1", f"{MARKER} xid 79"], ["in", "n1"]]


async def test_somebody_elses_drain_is_kept_inside_ours(pool: Pool) -> None:
    done = await final(pool.scheduler.drain(["n3"], "slow"))
    assert done["n3"].phase == "refused"
    done = await final(pool.scheduler.drain(["n3"], "slow", override=True))
    assert done["n3"].phase == "done"
    (seen,) = await pool.scheduler.allocations(["n3"])
    assert "bad DIMM" in seen.reason
    assert not seen.ours
    assert (await final(pool.scheduler.resume(["n3"])))["n3"].phase == "refused"


@pytest.mark.parametrize("reason", ["{node} {reason}", "$(reboot); `x` \"'", "-rf --all", "a\nb"])
async def test_a_reason_is_one_argument(pool: Pool, reason: str) -> None:
    await final(pool.scheduler.drain(["n1"], reason))
    calls = pool.read()["calls"]
    assert isinstance(calls, list)
    ((verb, node, written),) = calls
    assert (verb, node) == ("out", "n1")
    assert written.startswith(f"{MARKER} ")
    assert "\n" not in written


async def test_a_command_without_effect_is_no_success(pool: Pool) -> None:
    pool.state["ignores"] = True
    pool.save()
    done = await final(pool.scheduler.drain(["n1"], "x"))
    assert done["n1"].phase == "failed"
    assert "no effect" in done["n1"].detail


async def test_commands_that_fail(pool: Pool) -> None:
    pool.state["broken"] = "state"
    pool.save()
    with pytest.raises(SchedulerError, match="database is locked"):
        await pool.scheduler.allocations()
    done = await final(pool.scheduler.drain(["n1", "n2"], "x"))
    assert {step.phase for step in done.values()} == {"failed"}
    assert pool.read()["calls"] == [], "nothing is written on a state that was not read"
    pool.state["broken"] = "out"
    pool.save()
    done = await final(pool.scheduler.drain(["n1"], "x"))
    assert done["n1"].phase == "failed"
    assert "database is locked" in done["n1"].detail


async def test_words_that_are_no_state(pool: Pool) -> None:
    pool.state["nodes"] = {"n1": ["drianed"]}
    pool.save()
    with pytest.raises(SchedulerError, match=r"line 1: no state 'drianed'.*did you mean drained"):
        await pool.scheduler.allocations()


async def test_two_consoles_at_once_leave_one_reason(pool: Pool) -> None:
    await final(pool.scheduler.drain(["n1"], "xid 79"))
    done = await final(pool.scheduler.drain(["n1"], "something else"))
    assert done["n1"].phase == "done"
    assert len(pool.read()["calls"]) == 1  # type: ignore[arg-type]


def shell(state: str, drain: str = "true") -> HookScheduler:
    """Programs that are one line of sh each; $1 is the node."""

    def sh(line: str, *words: str) -> tuple[str, ...]:
        return ("/bin/sh", "-c", line, "hook", *words)

    hook = Hook(
        state=sh(state, "{nodes}"), drain=sh(drain, "{node}", "{reason}"), resume=sh("true")
    )
    return HookScheduler(LocalRun(), hook, ["n1"])


async def test_somebody_who_was_faster(tmp_path: Path) -> None:
    """Their drain comes between our look and our write; the program refuses ours."""
    seen = tmp_path / "seen"
    state = f"if [ -e {seen} ]; then echo n1 drained bad DIMM; else echo n1 idle; fi"
    for ending in ("exit 3", "true"):
        seen.unlink(missing_ok=True)
        done = await final(shell(state, f"touch {seen}; {ending}").drain(["n1"], "xid 79"))
        assert done["n1"].phase == "failed"
        assert "bad DIMM" in done["n1"].detail


async def test_written_and_then_silent_says_both(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    state = f"[ ! -e {seen} ] || exit 9; echo n1 idle"
    done = await final(shell(state, f"touch {seen}").drain(["n1"], "xid 79"))
    assert done["n1"].phase == "failed"
    assert "written, but its state cannot be read again" in done["n1"].detail


@pytest.mark.parametrize(
    "state", ["head -c 3000 /dev/urandom", "exec cat /dev/zero", "echo n1", "echo n1 '\u202eidle'"]
)
async def test_garbage_is_one_sentence(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "OUTPUT_BYTES", 1 << 20)
    with pytest.raises(SchedulerError) as error:
        await shell(state).allocations()
    assert len(str(error.value)) < 600
    assert str(error.value).isprintable()


GOOD = """\
hosts: n[1-4]
scheduler: hook
hook:
  state: [/bin/pool, state, "{nodes}"]
  drain: /bin/pool out {node} {reason}
  resume: [/bin/pool, in, "{node}"]
"""


def test_the_inventory_names_the_commands(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(GOOD)
    hook = load(path).hook
    assert hook is not None
    assert hook.drain == ("/bin/pool", "out", "{node}", "{reason}")


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ('"{nodes}"', '"x"', 4, "does not pass {nodes} on"),
        ("{reason}", "", 5, "does not pass {reason} on"),
        ('  resume: [/bin/pool, in, "{node}"]\n', "", 4, "hook has no resume"),
        ("  drain:", "  drian:", 4, "hook has no drain"),
        (GOOD.partition("hook:\n")[2], "", 3, "hook"),
        (GOOD[GOOD.index("hook:\n") :], "", 1, "scheduler: hook, but no hook:"),
        ('"{nodes}"', "'--nodes={nodes}'", 4, "a word of its own"),
    ],
)
def test_wrong_commands_are_named_with_their_line(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(UsageError) as error:
        load(path)
    assert says in str(error.value)
    assert f"{path}:{line}" in str(error.value)
