"""What is wrong with an ssh_config: rules, and hosts that jump through each other. Pure."""

from __future__ import annotations

from typing import Any

from probes.event import Action, Severity
from probes.rule import Rule

REFUSED = Rule(
    id="ssh.config",
    title="OpenSSH refuses the whole configuration",
    severity=Severity.WARN,
    reads="ssh_config files: Includes, keywords, values",
    cause="a line that OpenSSH does not take: it ends before it connects anywhere",
    action=Action.FIX_CONFIG,
    next_step="correct or remove that line; until then no connection works, whatever the node",
    source="ssh_config(5), readconf.c of OpenSSH 9.2; field case: ronf/asyncssh issue 469",
    others="-",
    example="Too many recursive configuration includes",
)
LOOP = Rule(
    id="ssh.jump_loop",
    title="Hosts jump through each other in a circle",
    severity=Severity.WARN,
    reads="ProxyJump of each host",
    cause="a pattern that also matches the jump host, most often",
    action=Action.FIX_CONFIG,
    next_step="give the jump host a block of its own in front, with ProxyJump none",
    source="ssh_config(5): ProxyJump; our rule",
    others="-",
    example="Host *: ProxyJump bastion",
)
UNSAFE = Rule(
    id="ssh.config_unsafe",
    title="Host keys are not checked",
    severity=Severity.INFO,
    reads="StrictHostKeyChecking no, known hosts in /dev/null",
    cause="set for convenience; anybody on the way can pretend to be the node",
    action=Action.FIX_CONFIG,
    next_step="use accept-new, or host certificates; gpuconsole never turns the check off",
    source="our rule: a changed host key is never accepted",
    others="-",
    example="StrictHostKeyChecking no",
)
RULES = (LOOP, REFUSED, UNSAFE)


def loops(settings: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Hosts that jump through each other in a circle: such a login never begins."""
    found: list[list[str]] = []
    for start in settings:
        path, host = [start], start
        while True:
            jump = str(settings.get(host, {}).get("proxyjump", "none")).rpartition(",")[2]
            host = jump.rpartition("@")[2].partition(":")[0]
            if host not in settings or len(path) > 50:
                break
            if host in path:
                loop = path[path.index(host) :]
                if len(loop) > 1 and all(set(loop) != set(known) for known in found):
                    found.append(loop)
                break
            path.append(host)
    return found
