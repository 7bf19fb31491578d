"""The conversation with the node: what we could not see is said."""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.gpu_driver import of_driver
from probes.checks.rule import Look, Rule
from probes.checks.timesync import NAME_CALLS
from probes.event import Action, Finding, NodeState, Severity

TALK = {
    NodeState.UNREACHABLE: Rule(
        id="node.unreachable",
        title="The node does not answer",
        severity=Severity.UNKNOWN,
        reads="the SSH connection",
        cause="node down, network, or sshd gone",
        action=Action.WATCH,
        next_step="ping it, then look at its BMC and the scheduler's view",
        source="our rule: unreachable is unknown, never ok",
        others="GCM, imbue, CVS",
        example="connection refused on port 22",
    ),
    NodeState.AUTH_FAILED: Rule(
        id="node.auth_failed",
        title="The node does not let us in",
        severity=Severity.UNKNOWN,
        reads="SSH authentication",
        cause="key, account or site policy",
        action=Action.FIX_CONFIG,
        next_step="log in by hand once: ssh -v NODE",
        source="our rule: a node that was not read is unknown, never ok",
        others="-",
        example="permission denied (publickey)",
    ),
    NodeState.HOST_KEY_CHANGED: Rule(
        id="node.host_key",
        title="The node's host key differs from the one on file",
        severity=Severity.UNKNOWN,
        reads="the SSH host key against known_hosts",
        cause="reinstalled node, address reuse, or an attack",
        action=Action.FIX_CONFIG,
        next_step="compare the fingerprint out of band, then remove the old entry by hand",
        source="our rule: a changed host key is never accepted, as ssh does with "
        "StrictHostKeyChecking",
        others="-",
        example="ED25519 key differs from known_hosts:41",
    ),
    NodeState.NO_PYTHON: Rule(
        id="node.no_python",
        title="No usable Python on the node",
        severity=Severity.UNKNOWN,
        reads="python3, python3.x, platform-python on the node",
        cause="minimal image",
        action=Action.FIX_CONFIG,
        next_step="install python3 (3.6 or newer), or set `python:` in the inventory",
        source="our rule: a node that was not read is unknown, never ok",
        others="-",
        example="no python3 of 3.6 or newer found",
    ),
    NodeState.HUNG: Rule(
        id="node.hung",
        title="The node is connected but silent",
        severity=Severity.UNKNOWN,
        reads="frames of the agent",
        cause="swapping, I/O stall, hung home directory",
        action=Action.WATCH,
        next_step="look at its console; check memory and file systems",
        source="our rule: hung is unknown, never ok",
        others="NVS #1576",
        example="no frame for 30 s, though the connection is alive",
    ),
    NodeState.STALE: Rule(
        id="node.stale",
        title="The node's answers are old",
        severity=Severity.UNKNOWN,
        reads="age of the last frame against three intervals",
        cause="slow node or network",
        action=Action.WATCH,
        next_step="wait for the next answer; look at its load",
        source="our estimate, not measured: older than three intervals is stale",
        others="-",
        example="no frame for 8 s",
        limits=("stale.intervals",),
    ),
}
PROBE_FAILED = Rule(
    id="node.probe_failed",
    title="A probe could not answer",
    severity=Severity.WARN,
    reads="error frames of the agent",
    cause="missing right, unexpected format, or a fault of the probe",
    action=Action.WATCH,
    next_step="what this probe reads is not known for this node; run it with sudo, or report the "
    "text",
    source="our rule: absent is not ok",
    others="-",
    example="infiniband: PermissionError",
)
BROKEN = Rule(
    id="internal.judge",
    title="This node could not be judged",
    severity=Severity.UNKNOWN,
    reads="all answers of the node",
    cause="a fault in gpuconsole, or an answer of a form that it does not expect",
    action=Action.WATCH,
    next_step="look at the node by hand; report the text, if possible with a recording",
    source="our rule: a node that was not judged is unknown, never ok",
    others="-",
    example="ValueError: invalid literal for int() with base 10: 'N/A'",
)
NOT_READ = Rule(
    id="node.not_read",
    title="The node answers, but said nothing about its GPUs",
    severity=Severity.UNKNOWN,
    reads="whether the agent's gpu and inventory probes ever answered",
    cause="a slow or hanging driver, a node under heavy load, or a pass that was too short",
    action=Action.WATCH,
    next_step="raise --timeout; look at load and driver (nvidia-smi) on the node",
    source="our rule: a node whose GPUs were not read is unknown, never ok",
    others="-",
    example="no answer from gpu, inventory",
)
PROBE_HUNG = Rule(
    id="node.probe_hung",
    title="A call of a probe does not return",
    severity=Severity.WARN,
    reads="how long each call of the agent takes; driver, file systems and disks have rules of "
    "their own",
    cause="a kernel file, a tool or a service on the node that does not answer",
    action=Action.WATCH,
    next_step="the named call tells what to look at; what this probe reads is not known till then",
    source="our deadline of 5 s, not measured",
    others="PRI: vendor call > 5 s fails the node",
    example="timesync: hung in run chronyc for 12 s",
)
RULES = (*TALK.values(), PROBE_FAILED, PROBE_HUNG, NOT_READ, BROKEN)

CORE = ("gpu", "inventory")
PATIENCE_S = 10.0
"""After hello: first answers come within 1 s, within 5 s where the driver has to wake its GPUs."""


def check(look: Look) -> Iterator[Finding]:
    """The conversation first."""
    status = look.facts.status
    if status is not None and status.state in TALK and not _off(look):
        yield TALK[status.state].finding(
            look, status.text or TALK[status.state].title, (status.text or status.reason,),
            next_step=status.hint,
        )  # fmt: skip
    for probe, trouble in sorted(look.facts.troubles.items()):
        severity = Severity.UNKNOWN if probe in CORE else Severity.WARN
        yield PROBE_FAILED.finding(
            look, f"not checked: {probe} failed", (f"{probe}: {trouble.text}",), device=probe,
            label=probe, severity=severity,
        )  # fmt: skip
    yield from _hung(look)
    yield from _not_read(look)


def _hung(look: Look) -> Iterator[Finding]:
    """What no other check tells."""
    for (probe, device), status in sorted(look.facts.hung.items()):
        elsewhere = bool(device) and (probe in ("storage", "nvme") or device in NAME_CALLS)
        if not elsewhere and not of_driver(probe, status):
            what = f"{probe} ({device})" if device else probe
            say = f"not checked: {what} hangs for {status.since_s or 0:.0f} s"
            yield PROBE_HUNG.finding(
                look, say, (f"{probe}: {status.text or 'hung'}",), device=what, label=what,
                value=status.since_s,
            )  # fmt: skip


def _not_read(look: Look) -> Iterator[Finding]:
    """Core probes that neither answered, failed nor hung, though there was time."""
    facts, hello = look.facts, look.facts.get("hello")
    over = facts.status is not None and facts.status.state is NodeState.ENDED
    if hello is None or not (over or look.now - hello.at > PATIENCE_S):
        return
    told = {probe for probe, _ in facts.latest} | {probe for probe, _ in facts.hung}
    told |= set(facts.troubles)
    if told & {"gpu", "inventory"} or (facts.status and facts.status.state in TALK):
        return
    yield NOT_READ.finding(
        look, "its GPUs were not read", ("no answer from gpu, inventory",), device="", label=""
    )


def _off(look: Look) -> bool:
    return look.facts.allocation is not None and look.facts.allocation.state == "off"
