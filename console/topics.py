"""Pages of `explain` that are of no rule: how the lemon score counts, the levels of tests."""

from __future__ import annotations

from console.active.level import CPU_ENGINES
from console.active.results import Level
from console.memory import lemon
from probes.checks.explain import Page

_DAYS = f"{lemon.WINDOW_S / 86400:.0f}"


def pages() -> dict[str, Page]:
    """Topic -> its page."""
    return {"lemon": _lemon(), "test": _test()}


def _lemon() -> Page:
    week = f"{lemon.AGAIN_S / 86400:.0f}"
    return (
        ("", "lemon  A score for nodes that keep coming back sick"),
        ("shown by", "gpuconsole history HOSTS, and the HTML report of a test"),
        ("now", f"what is open and was seen within {lemon.STALE_S / 3600:.0f} h: "
         f"{lemon.HARD_NOW} for hard critical findings together, {lemon.CRITICAL_NOW} for each "
         f"other critical one, {lemon.WARN_NOW} for each warning, {lemon.WARN_MOST} at most"),
        ("history", f"of the last {_DAYS} days, {lemon.HISTORY_MOST} at most: each finding that is "
         f"over {lemon.PAST_HARD} (hard), {lemon.PAST_CRITICAL} (critical) or {lemon.PAST_WARN} "
         f"(warning); {lemon.BURST} for the same Xid {lemon.BURST_COUNT} times; {lemon.OUTAGE} for "
         f"each time out of work; {lemon.OFTEN_OUT} when that was more than "
         f"{100 * lemon.OUT_SHARE:.0f} % of the time; {lemon.SICK_AGAIN} when it was critical or "
         f"out again within {week} days of its return; {lemon.TEST_FAILED} for each test not "
         "passed"),
        ("not counted", "times out of work whose reason speaks of maintenance, upgrades, "
         "reimaging, reservations, burn-in or acceptance; jobs that failed, which are not "
         "known to us"),
        ("next step", "a node with a high score and nothing open is one for the vendor, or for a "
         "longer test before its next job: gpuconsole test HOSTS --level gpu, then node"),
        ("beware", "absence of evidence counts for nothing: read the time watched beside "
         "the score"),
        ("source", f"{lemon.SOURCE}; there 40 lemon nodes were found, 85 % of them rightly"),
    )  # fmt: skip


def _test() -> Page:
    levels = {
        Level.GPU: "each GPU alone: GEMM, HBM copy, copies to and from the host and its peers",
        Level.NODE: "an all-reduce over the GPUs of each node: NVLink and the GPUs together",
        Level.PAIRS: "an all-reduce over disjoint pairs of nodes, in rounds: which node or which "
        "path is slow; suspects are run again with known-good partners",
        Level.RAILS: "an all-reduce over the GPUs of one local index on all nodes, one index after "
        "the other: adapters and switches of one rail",
        Level.CLUSTER: "an all-reduce over 2, 4, 8 ... all nodes: where it stops to scale",
    }
    return (
        ("", "test  Levels of `gpuconsole test HOSTS --level LEVEL`, from small to large"),
        *((level.value, text) for level, text in levels.items()),
        ("verdict", "a figure against the product's, the node's own past, or the good runs of the "
         "same test; without any of these it is unknown, and no pass"),
        ("on CPUs", f"{' and '.join(CPU_ENGINES)} run where there is no GPU, and are never judged "
         "as GPUs"),
        ("next step", "begin with node; a slow one: gpu; all good but the job slow: pairs, then "
         "rails; gpuconsole history HOSTS tells what earlier tests found"),
        ("disturbs", "what it runs on is busy meanwhile: only idle nodes, unless you own them and "
         "say --i-own-these-nodes"),
    )  # fmt: skip
