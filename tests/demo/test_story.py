"""The story: deterministic by seed, plausible in its values, and every fault shows at its time."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from console.demo.scenario import KINDS, Fault, Job, Scenario, load
from console.demo.story import Story

START = 10.0


def scenario(*faults: Fault, load_kind: str = "training") -> Scenario:
    job = Job(id="1", user="ann", name="", nodes=("n1", "n2"), load=load_kind)
    return Scenario(
        name="t", seed=5, nodes=("n1", "n2"), hardware="h100", jobs=(job,), faults=faults
    )


def one(kind: str, **more: Any) -> Story:
    places = {"gpu": 3, "link": 11, "port": "mlx5_2/1", "xid": 94}
    needed = {part: places[part] for part in KINDS[kind] if part != "node"}
    if kind == "xid":
        needed["xid"] = 94
    return Story(scenario(Fault(node="n1", kind=kind, at_s=START, **{**needed, **more})))


def everything(story: Story, t: float) -> dict[str, Any]:
    return {
        node: (story.nvml(node, t), story.files(node, t), story.lines(node, -1e9, t))
        for node in story.scenario.nodes
    }


def test_the_same_seed_tells_the_same_story_in_any_order() -> None:
    times = [0.0, 3.5, 61.0, 119.0]
    forward = {t: everything(Story(load()), t) for t in times}
    story = Story(load())
    backward = {t: everything(story, t) for t in reversed(times)}
    assert forward == backward


def test_another_seed_tells_another() -> None:
    base = load()
    other = replace(base, seed=base.seed + 1)
    assert everything(Story(base), 9.0) != everything(Story(other), 9.0)


def test_two_nodes_and_two_gpus_differ() -> None:
    story = Story(load())
    uuids = [g["uuid"] for n in story.scenario.nodes for g in story.nvml(n, 0)["gpus"]]
    assert len(set(uuids)) == len(uuids) == 16 * 8


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"thermal"}))
def test_a_fault_shows_at_its_time_and_not_before(kind: str) -> None:
    sick, healthy = one(kind), Story(scenario())
    before, after = START - 0.5, START + 5.0
    assert everything(sick, before) == everything(healthy, before)
    changed = (
        everything(sick, after) != everything(healthy, after)
        or sick.answers("n1", after) != "ssh"
        or kind == "host_key"
    )
    assert changed
    assert everything(sick, after)["n2"] == everything(healthy, after)["n2"]


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"thermal", "host_key"}))
def test_a_fault_that_ends_is_over(kind: str) -> None:
    sick, healthy = one(kind, for_s=5.0), Story(scenario())
    late = START + 6.0
    assert sick.nvml("n1", late) == healthy.nvml("n1", late)
    assert sick.files("n1", late) == healthy.files("n1", late)
    assert sick.answers("n1", late) == "ssh"


def gpu(story: Story, t: float, index: int = 3, node: str = "n1") -> dict[str, Any]:
    found: dict[str, Any] = story.nvml(node, t)["gpus"][index]
    return found


def test_a_lost_gpu_is_lost_everywhere_at_once() -> None:
    story, at = one("gpu_lost"), START + 1
    assert gpu(story, at)["rc"] == {"*": 15}
    assert "rc" not in gpu(story, at, 4)
    config = [v for k, v in story.files("n1", at).items() if "9d:00" in k or "61:00" in k]
    assert config == [b"\xff" * 64]
    text = "\n".join(line.text for line in story.lines("n1", START - 1, at))
    assert "Xid (PCI:0000:61:00): 79," in text
    assert "Xid (PCI:0000:61:00): 154," in text


def test_a_hot_gpu_heats_up_then_loses_clock_and_power() -> None:
    story = one("thermal")
    peer = gpu(story, START + 60, 2)
    temps = [gpu(story, START + s)["temp"] for s in (0, 5, 15, 60)]
    assert temps == sorted(temps)
    assert temps[0] < 70 < 85 <= temps[-1]
    hot = gpu(story, START + 60)
    assert hot["sm_mhz"] < 0.75 * peer["sm_mhz"]
    assert hot["power_w"] < 0.8 * peer["power_w"]
    assert hot["util"] > 90
    assert hot["reasons"] & 0x40
    assert not gpu(story, START)["reasons"] & 0x60
    counted = [gpu(story, START + s)["fields"]["270"] for s in (-1, 20, 40)]
    assert counted[0] == 0 < counted[1] < counted[2]


def test_a_hot_gpu_is_not_throttled_once_its_job_has_ended() -> None:
    fault = Fault(node="n1", kind="thermal", at_s=START, gpu=3)
    told = scenario(fault)
    story = Story(replace(told, jobs=(replace(told.jobs[0], for_s=START + 60),)))
    counted = [gpu(story, START + s)["fields"]["270"] for s in (30, 60, 90, 200)]
    assert counted[0] < counted[1] == counted[2] == counted[3]
    assert "fields.270" not in gpu(story, START + 90)["drift"]


def test_a_flapping_port_goes_down_and_comes_back_and_counts() -> None:
    story = one("ib_flap")
    base = "sys/class/infiniband/mlx5_2/ports/1/"
    states, downs, symbols = set(), [], []
    for tenth in range(300):
        found = story.files("n1", START + tenth / 10)
        states.add(str(found.get(base + "state", "up")).strip())
        downs.append(int(found[base + "counters/link_downed"] or -1))
        symbols.append(int(found[base + "counters/symbol_error"] or -1))
    assert states == {"1: DOWN", "up"}
    assert downs == sorted(downs)
    assert downs[-1] - downs[0] == 5
    assert symbols == sorted(symbols)
    assert (symbols[-1] - symbols[0]) / 30 > 10
    lines = [line.text for line in story.lines("n1", START, START + 30)]
    assert sum("DOWN" in line for line in lines) == 5


def test_kernel_lines_come_once_whatever_the_steps() -> None:
    story = one("ib_flap")
    whole = story.lines("n1", 0, 60)
    steps = [line for t in range(60) for line in story.lines("n1", t, t + 1)]
    assert whole == steps
    assert whole == sorted(whole)


def test_a_waiting_job_is_busy_cool_and_alike_on_all_gpus() -> None:
    story = Story(scenario(load_kind="waiting"))
    gpus = story.nvml("n1", 50.0)["gpus"]
    assert all(g["util"] == 100 and g["power_w"] < 300 for g in gpus)
    clocks = {g["sm_mhz"] for g in gpus}
    assert len(clocks) == 1


def test_counters_never_go_back_and_values_stay_possible() -> None:
    story = Story(load())
    before: dict[tuple[str, str], int] = {}
    for t in range(0, 130, 2):
        for node in story.scenario.nodes:
            for path, value in story.files(node, float(t)).items():
                if "/counters/" in path and value is not None:
                    assert int(value) >= before.get((node, path), 0)
                    before[node, path] = int(value)
            for g in story.nvml(node, float(t))["gpus"]:
                assert 20 <= g["temp"] <= 92
                assert 40 <= g["power_w"] <= 1.02 * g["power_limit_w"]
                assert 0 <= g["util"] <= 100
                assert g["sm_mhz"] <= g["sm_max_mhz"]
                assert g["mem_used_mib"] <= g["mem_total_mib"]


def test_an_idle_gpu_says_idle_and_has_no_process() -> None:
    idle = gpu(Story(load()), 5.0, node="gpu015")
    assert idle["reasons"] == 1
    assert (idle["util"], idle["procs"]) == (0, [])


def test_a_later_job_end_cools_the_gpus() -> None:
    job = Job(id="1", user="a", name="", nodes=("n1",), load="training", for_s=20)
    story = Story(Scenario(name="t", seed=2, nodes=("n1",), hardware="h100", jobs=(job,)))
    temps = [gpu(story, t)["temp"] for t in (19.0, 25.0, 40.0, 120.0)]
    assert temps == sorted(temps, reverse=True)
    assert temps[0] > 55
    assert temps[-1] < 36
