"""What ssh, pdsh and ansible print when they do not get in: of one host or of many.

Nothing here is about hardware: a node that was not read is unknown, never down and never drained.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from msgspec import Struct, field

from console.diagnose import ssh_words
from console.diagnose.report import NO, Report, found
from console.diagnose.text import Text
from inventory.expressions import fold
from probes.checks.node import TALK
from probes.event import Action, Finding, NodeState, Severity
from probes.reasons import LIMIT_BYTES
from probes.rule import Rule
from probes.transport import Failure

KIND = "ssh-transport"
TITLE = "errors of ssh, pdsh, clush and ansible"
STREAMS = False

OURS = Rule(
    id="ssh.local",
    title="ssh fails on this side, before any node is asked",
    severity=Severity.UNKNOWN,
    reads="error lines of the ssh client",
    cause="configuration, keys, agent or limits of the machine that connects",
    action=Action.FIX_CONFIG,
    next_step="correct it here; the nodes are not at fault",
    source="messages of OpenSSH 9; our rule",
    others="-",
    example='unix_listener: path "/run/user/1000/..." too long for Unix domain socket',
)
HOME = Rule(
    id="ssh.home",
    title="A node lets in but cannot work for the account",
    severity=Severity.WARN,
    reads="messages after a login",
    cause="the home file system does not answer, or no process can be started",
    action=Action.WATCH,
    next_step="look at mounts, processes and memory on its console",
    source="messages of OpenSSH 9; our rule",
    others="-",
    example="Could not chdir to home directory /home/user1: Stale file handle",
)
RULES = (OURS, HOME)
_LOCAL = ("control_path_too_long",)

HOSTS = 20_000
_KEY_LINE = re.compile(r"^Offending |^SHA256:|^Host key for |IDENTIFICATION HAS CHANGED")
"""What matters of the long warning about a changed key."""
_HEAD = re.compile(r"^(?:#{2,4}|={2,}|\*{2,}) *(?P<host>[\w.-]+)(?: +rc=(?P<rc>-?\d+))?[ =*]*$")
_PREFIX = re.compile(r"^(?:pdsh@[\w.-]+: )?(?P<host>[A-Za-z][\w.-]*): (?P<text>.*)$")
_ANSIBLE = re.compile(
    r"^(?P<host>[\w.-]+) \| (?P<what>UNREACHABLE!|SUCCESS|FAILED!|CHANGED)(?P<text>.*)$"
)
_NAMES = (
    re.compile(r"Host key for (?P<host>\S+) has changed"),
    re.compile(r"connect to host (?P<host>\S+) port"),
    re.compile(r"Could not resolve hostname (?P<host>[^\s:]+)"),
    re.compile(r"host key is known for (?P<host>\S+)"),
    re.compile(r"authenticity of host '(?P<host>[^'\s(]+)"),
    re.compile(r"(?:^|\s)[\w.+-]+@(?P<host>[\w.-]+): Permission denied"),
    re.compile(r"host key for (?P<host>\S+) is marked as revoked"),
    re.compile(r"Unable to negotiate with (?P<host>\S+)"),
    re.compile(
        r"(?:Received disconnect from|server|Connection (?:closed|reset) by) "
        r"(?P<host>\S+?)(?: |:| port)"
    ),
    re.compile(r"Connection to (?P<host>\S+) closed"),
)
_PROMPT = re.compile(
    r"^\([\w.+-]+@[\w.-]+\) |^(?:[\w.+-]+@[\w.-]+'s )?(?:password|passcode|verification code|"
    r"one-time|duo|enter .*(?:code|pin|token))\b.*: ?$", re.IGNORECASE,
)  # fmt: skip


class Host(Struct):
    """What was said about one host."""

    name: str
    rc: int | None = None
    lines: list[str] = field(default_factory=list)


def sniff(head: str) -> int:
    """By OpenSSH's and PAM's own words."""
    return ssh_words.strength(head)


def read(text: Text) -> Report:
    """Host by host where the text names several, as one otherwise."""
    hosts = _hosts(text)
    report = Report(kind=KIND, measured=False)
    told = {host.name: (host, _failure(host)) for host in hosts}
    by_host: dict[str, str] = {}
    for name, (host, failure) in told.items():
        by_host[name] = _kind(failure) if failure else ("ok" if host.rc == 0 else "unknown")
        if failure is not None:
            report.findings.append(_finding(name, host, failure))
    if len(hosts) == 1:
        report.facts = _facts(*next(iter(told.values())))
        report.facts.setdefault("host", hosts[0].name)
    else:
        report.facts = {"by_host": by_host, "counts": dict(Counter(by_host.values()))}
    report.facts = {k: v for k, v in report.facts.items() if v not in ("", None, [])}
    if hosts and all(word == "ok" for word in by_host.values()):
        report.measured = True
    report.drain = NO
    report.say = _say(told)
    report.unknown.append("the GPUs of these nodes: nothing was measured")
    return report


def _hosts(text: Text) -> list[Host]:
    """Lines by host; headings, prefixes and ansible's lines name them."""
    named: dict[str, Host] = {}
    lines = text.lines()
    prefixed = _prefixed([line for _, line in lines])
    current = ""
    for _, line in lines:
        if head := _HEAD.match(line):
            current = head["host"]
            one = named.setdefault(current, Host(current))
            one.rc = int(head["rc"][:6]) if head["rc"] else None
            continue
        if ansible := _ANSIBLE.match(line):
            one = named.setdefault(ansible["host"], Host(ansible["host"]))
            one.rc = 0 if ansible["what"] in ("SUCCESS", "CHANGED") else one.rc
            one.lines.append(ansible["text"])
            current = ansible["host"]
            continue
        prefix = _PREFIX.match(line) if prefixed else None
        if prefix and prefix["host"] in prefixed:
            named.setdefault(prefix["host"], Host(prefix["host"])).lines.append(prefix["text"])
        elif len(named) < HOSTS:
            named.setdefault(current, Host(current)).lines.append(line)
    return _named(list(named.values()), text.host)


def _prefixed(lines: list[str]) -> set[str]:
    """Names that pdsh or clush put in front: a host, then what ssh said."""
    names = [m["host"] for line in lines if (m := _PREFIX.match(line))
             and (ssh_words.strength(m["text"]) or "ssh exited" in m["text"])]  # fmt: skip
    return {name for name in names if name not in ("ssh", "Warning", "WARNING", "error", "sudo")}


def _named(hosts: list[Host], prompt: str) -> list[Host]:
    """Lines without a heading: split by the hosts that their own words name."""
    kept = [host for host in hosts if host.name or any(line.strip() for line in host.lines)]
    if len(kept) != 1 or kept[0].name:
        return [host for host in kept if host.name] or kept
    named: dict[str, Host] = {}
    before: list[str] = []
    for line in kept[0].lines:
        name = _name_in(line)
        if not name or (name not in named and _is_address(name) and named):
            before.append(line)
            continue
        one = named.setdefault(name, Host(name))
        one.lines += [*before, line]
        before = []
    if not named:
        return [Host(prompt, None, kept[0].lines)]
    if len(named) == 1:
        return [Host(next(iter(named)), None, kept[0].lines)]
    list(named.values())[-1].lines += before
    return list(named.values())


def _name_in(line: str) -> str:
    found = next((m["host"] for p in _NAMES if (m := p.search(line[:2000]))), "")
    if port := re.fullmatch(r"\[(?P<host>[^\]]+)\]:\d{1,5}", found):
        found = port["host"]
    found = found.strip("[]'\".,:")
    return "" if found in ("remote", "UNKNOWN", "localhost") else found


def _is_address(name: str) -> bool:
    return re.fullmatch(r"[\d.]+|[0-9a-f:]*:[0-9a-f:]*", name) is not None


def _failure(host: Host) -> Failure | None:
    told = ssh_words.read("\n".join(host.lines))
    return told[0] if told else None


def _finding(name: str, host: Host, failure: Failure) -> Finding:
    lines = [line.strip() for line in host.lines if line.strip("@ \t-")
             and not ssh_words.NOISE.match(line) and not _PROMPT.match(line)]  # fmt: skip
    lines.sort(key=lambda line: _KEY_LINE.search(line) is None)
    local = failure.state is ssh_words.LOCAL or failure.reason in _LOCAL
    rule = OURS if local else HOME if failure.reason == "home" else TALK.get(failure.state)
    return found(rule or TALK[NodeState.UNREACHABLE], failure.what, *lines[:6],
                 node="" if local else name, next_step=failure.hint)  # fmt: skip


def _kind(failure: Failure) -> str:
    return "host_key_changed" if failure.reason == "host_key" else failure.reason


def _facts(host: Host, failure: Failure | None) -> dict[str, Any]:
    text = "\n".join(host.lines)
    facts: dict[str, Any] = {"host": host.name}
    if failure is None:
        return {**facts, "rc": host.rc}
    facts["error"] = _kind(failure)
    facts["rc"] = host.rc if host.rc is not None else 255
    if failure.reason == "control_path_too_long":
        facts["limit_bytes"] = LIMIT_BYTES
        facts.pop("host")
    if offending := re.search(r"Offending (\S+) key in (\S+):(\d{1,9})", text):
        facts |= {"key_type": offending[1], "file": offending[2], "file_line": int(offending[3])}
    if sent := re.search(r"(SHA256:[\w+/=]+|MD5:[0-9a-f:]+)", text):
        facts["fingerprint"] = sent[1]
    if methods := re.search(r"Permission denied \(([^)]*)\)", text):
        facts["methods"] = methods[1].split(",")
    if offer := re.search(r"Their offer: (\S+)", text):
        facts["their_offer"] = offer[1].split(",")
    facts["prompts"] = sum(1 for line in host.lines if _PROMPT.match(line)) or None
    return facts


def _say(told: dict[str, tuple[Host, Failure | None]]) -> str:
    groups: dict[str, tuple[Failure, list[str]]] = {}
    for name, (_, failure) in told.items():
        if failure is not None:
            groups.setdefault(failure.reason, (failure, []))[1].append(name)
    if not groups:
        return "the login worked" if told else "nothing that ssh says when it fails"
    return "; ".join(_sentence(failure, list(filter(None, names)))
                     for failure, names in list(groups.values())[:5]) + "."  # fmt: skip


def _sentence(failure: Failure, names: list[str]) -> str:
    who = fold(names) if names else "the node"
    if failure.reason == "needs_interactive_auth":
        return (f"{who} wants a second factor or a password: log in once by hand (shared "
                "connection); no automatic repeats")  # fmt: skip
    if failure.reason == "host_key":
        return (f"{who} not probed: {failure.what}. Confirm the new fingerprint with whoever "
                "reinstalled it")  # fmt: skip
    if failure.state is ssh_words.LOCAL or failure.reason in _LOCAL:
        return f"{failure.what[:1].upper()}{failure.what[1:]}. The nodes are not at fault"
    return f"{who}: {failure.what}; {failure.hint}"
