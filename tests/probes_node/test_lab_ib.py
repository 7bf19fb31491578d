"""The simulated fabric does what tests expect of it: real tools see what was set."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import lab_ib
from tests.conftest import Lab
from tests.probes_node.rig import REPOSITORY


@pytest.fixture
def fabric(lab: Lab, tmp_path: Path) -> Iterator[lab_ib.Fabric]:
    lab_ib.require(lab)
    with lab_ib.fabric(tmp_path / "ib", lab_ib.two_leaves("4xHDR")) as made:
        yield made


def field(text: str, name: str) -> str:
    """`name` in the lines "Name:....value" or "Name: value"."""
    (line,) = [line.strip() for line in text.splitlines() if line.strip().startswith(f"{name}:")]
    return line.partition(":")[2].strip(". ")


def test_real_tools_see_counters_and_links(fabric: lab_ib.Fabric) -> None:
    assert field(fabric.run("n3", "ibstat"), "State") == "Active"
    fabric.counter("n3/1", "SymbolErrorCounter", 120)
    fabric.counter("n3/1", "LinkDownedCounter", 3)
    answer = fabric.run("n1", "perfquery", str(fabric.lid("n3")), "1")
    assert (field(answer, "SymbolErrorCounter"), field(answer, "LinkDownedCounter")) == ("120", "3")
    assert '"n3"' in fabric.run("n1", "iblinkinfo")
    assert "SymbolErrorCounter == 120" in fabric.run("n1", "ibqueryerrors")
    fabric.unlink("n3/1")
    assert field(fabric.run("n3", "ibstat"), "State") == "Down"
    assert field(fabric.run("n4", "ibstat"), "State") == "Active"
    fabric.relink("n3/1")
    fabric.sweep()
    assert field(fabric.run("n3", "ibstat"), "State") == "Active"


def test_without_a_subnet_manager_a_port_stays_in_init(fabric: lab_ib.Fabric) -> None:
    fabric.orphan()
    fabric.unlink("n3/1")
    fabric.relink("n3/1")
    assert field(fabric.run("n3", "ibstat"), "State") == "Initializing"
    fabric.manage()
    assert field(fabric.run("n3", "ibstat"), "State") == "Active"


PROBE = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from probes.node import infiniband
from probes.node.context import Context
os.listdir("/sys/class/infiniband")  # the simulator makes its tree at the first look
print(json.dumps(infiniband.collect(Context("sys-%d" % os.getpid()))[0]))
"""


def probed(fabric: lab_ib.Fabric, host: str) -> dict[str, Any]:
    """The one port of a host as our probe reads it, from the simulator's own sysfs."""
    answer = fabric.run(host, sys.executable, "-c", PROBE, str(REPOSITORY))
    (port,) = json.loads(answer).values()
    found: dict[str, Any] = port
    return found


def test_our_probe_reads_what_ibstat_prints(fabric: lab_ib.Fabric) -> None:
    for change in ("", "unlink", "orphan", "relink"):
        if change == "orphan":
            fabric.orphan()
        elif change:
            {"unlink": fabric.unlink, "relink": fabric.relink}[change]("n3/1")
        text, port = fabric.run("n3", "ibstat"), probed(fabric, "n3")
        names = {"Active": 4, "Initializing": 2, "Down": 1}
        assert port["state"] == names[field(text, "State")]
        assert port["phys_text"].lower() == field(text, "Physical state").lower()
        assert port["fw"] == field(text, "Firmware version")
        assert port["hca"] == field(text, "CA type")
        assert port["rate_gbps"] == float(field(text, "Rate"))
