"""Pasted ssh_config files: who gets which settings, and what makes OpenSSH refuse them all.

Read on paper: `ssh -G` would run the commands of Match exec, and these files are not ours. First
value wins, Include and Host as ssh_config(5) has them, by the same reader as the live console's.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from console.diagnose.report import Report
from console.diagnose.ssh_config_rules import LOOP, REFUSED, UNSAFE, loops
from console.diagnose.ssh_config_rules import RULES as OWN_RULES
from console.diagnose.text import Line, Text
from probes.ssh_files import DEPTH_MAX, HONOURED, MOOT, matches, split

KIND = "ssh-config"
TITLE = "ssh_config files ('### NAME' before each)"
STREAMS = False
RULES = OWN_RULES


_MORE_WORDS = """
verifyhostkeydns hostbasedauthentication gssapiauthentication gssapidelegatecredentials
gssapikeyexchange gssapirenewalforcesrekey gssapiserveridentity gssapitrustdns gssapiclientidentity
gssapikexalgorithms pubkeyauthentication stricthostkeychecking casignaturealgorithms revokedhostkeys
hostbasedacceptedalgorithms hostbasedkeytypes pubkeyacceptedalgorithms pubkeyacceptedkeytypes
pkcs11provider securitykeyprovider requiredrsasize enablesshkeysign knownhostscommand
nohostauthenticationforlocalhost bindinterface versionaddendum rekeylimit checkhostip channeltimeout
protocol cipher rsaauthentication rhostsrsaauthentication useprivilegedport useroaming
afstokenpassing kerberosauthentication keepalive skeyauthentication tisauthentication identityfile2
userknownhostsfile2 globalknownhostsfile2 usersh fallbacktorsh addkeystoagent proxyusefdpass
dsaauthentication smartcarddevice forwardx11 batchmode kbdinteractivedevices refuseconnection
"""
KEYWORDS = HONOURED | MOOT | frozenset(_MORE_WORDS.split())
"""Every keyword of OpenSSH 9, deprecated ones included: those are ignored, not refused."""
_SHOWN = ("user", "port", "hostname", "identityfile", "proxyjump", "proxycommand", "identitiesonly",
          "userknownhostsfile", "stricthostkeychecking", "hostkeyalias", "controlpath")  # fmt: skip
_HEADING = re.compile(r"^### +(?P<name>\S+)\s*$|^==> (?P<tail>\S+) <==\s*$")
_SNIFF = re.compile(r"^[ \t]*(?:Host|Match|Include|HostName|User|Port|IdentityFile|ProxyJump|"
                    r"ProxyCommand|"
                    r"ControlPath|ControlMaster|StrictHostKeyChecking|UserKnownHostsFile|ForwardAgent|"
                    r"ServerAliveInterval)(?:[ \t]+|[ \t]*=[ \t]*)\S",
                    re.MULTILINE | re.IGNORECASE)  # fmt: skip
_BARE = re.compile(r"^[ \t]+(?:HostName|User|Port|IdentityFile|ProxyJump)[ \t]*$",
                   re.MULTILINE | re.IGNORECASE)  # fmt: skip
"""A keyword whose value is missing."""
_BLOCK = re.compile(
    r"^[ \t]*(?:Host|Match|Include)(?:[ \t]+|[ \t]*=[ \t]*)\S", re.MULTILINE | re.IGNORECASE
)
HOSTS = 2000
STEPS = 200_000
"""Most lines looked at for one host: Includes of Includes multiply."""


class Problem(Struct, frozen=True):
    """What OpenSSH would refuse."""

    what: str
    file: str
    line: int
    text: str


class Files(Struct):
    """Named files, as far as they were pasted."""

    lines: dict[str, list[Line]] = field(default_factory=dict)
    first: str = ""
    problems: dict[Problem, None] = field(default_factory=dict)
    unmatched: dict[str, None] = field(default_factory=dict)
    opaque: list[str] = field(default_factory=list)
    """Match lines that cannot be decided on paper."""
    steps: int = 0

    def named(self, pattern: str) -> list[str]:
        """Pasted files that an Include's pattern means."""
        wanted = _short(pattern)
        return sorted(
            name for name in self.lines
            if name.count("/") == wanted.count("/") and fnmatch.fnmatchcase(name, wanted)
        )  # fmt: skip


def sniff(head: str) -> int:
    """By keywords at the beginnings of lines, a Host, Match or Include among them."""
    hits = len(_SNIFF.findall(head)) + len(_BARE.findall(head))
    lines = sum(
        1 for line in head.splitlines() if line.strip() and not line.lstrip().startswith("#")
    )
    if hits < 2 or not _BLOCK.search(head) or hits * 3 < lines:
        return 0
    return min(92, 70 + 3 * hits)


def read(text: Text) -> Report:
    """Settings of each host that the files name."""
    files = _files(text)
    report = Report(kind=KIND)
    hosts, samples = _hosts(files)
    settings = {host: _settings(files, host) for host in hosts[:HOSTS]}
    if not hosts:
        _settings(files, "any")
    report.facts = {"hosts": hosts, **settings, "files": list(files.lines)}
    if samples:
        report.facts["sample_of"] = samples
    _problems(files, report)
    report.facts["openssh_would_run"] = not files.problems
    if files.unmatched:
        names = list(files.unmatched)
        report.facts["no_error_for"] = names[0] if len(names) == 1 else names
    for host, told in settings.items():
        if told.get("stricthostkeychecking") in ("no", "off"):
            report.add(UNSAFE, f"host keys of {host} are not checked", "StrictHostKeyChecking no")
            break
    for loop in loops(settings)[:20]:
        circle = " to ".join([*loop, loop[0]])
        report.facts.setdefault("jump_loops", []).append(loop)
        report.add(LOOP, f"ProxyJump leads in a circle: {circle}",
                   *(f"{host}: ProxyJump {settings[host]['proxyjump']}"
                     for host in loop[:4]))  # fmt: skip
    if files.opaque:
        report.unknown.append(
            f"what {files.opaque[0]!r} decides: ssh -G HOST on that machine tells"
        )
    report.say = _say(settings, files)
    return report


def _files(text: Text) -> Files:
    files = Files()
    name = ""
    for line in text:
        heading = _HEADING.match(line.text)
        if heading:
            name = _short(heading["name"] or heading["tail"])
            files.lines.setdefault(name, [])
            files.first = files.first or name
        elif name or line.text.strip():
            name = name or "config"
            files.first = files.first or name
            files.lines.setdefault(name, []).append(line)
    return files


def _short(name: str) -> str:
    return re.sub(r"^(?:~|/home/[^/]+|/root)/\.ssh/|^\./", "", name)


def _hosts(files: Files) -> tuple[list[str], dict[str, str]]:
    """Host names in the order of reading, and for patterns an example of theirs."""
    found: dict[str, None] = {}
    samples: dict[str, str] = {}
    for patterns in _host_lines(files, files.first, ()):
        for pattern in patterns:
            if pattern.startswith("!") or pattern.strip("*?.") == "":
                continue
            name = pattern.replace("*", "01").replace("?", "1")
            found.setdefault(name, None)
            if name != pattern:
                samples[name] = pattern
    return list(found), samples


def _host_lines(files: Files, name: str, inside: tuple[str, ...]) -> Iterator[list[str]]:
    for _, text in files.lines.get(name, ()):
        files.steps += 1
        keyword, values = split(text)
        if keyword == "host":
            yield values
        elif keyword == "include" and len(inside) < DEPTH_MAX and files.steps < STEPS:
            for value in values:
                for other in files.named(value):
                    if other not in (*inside, name):
                        yield from _host_lines(files, other, (*inside, name))


def _settings(files: Files, host: str) -> dict[str, Any]:
    found: dict[str, list[str]] = {}
    files.steps = 0
    _walk(files, files.first, host, found, (), live=True)
    told: dict[str, Any] = {}
    for keyword in _SHOWN:
        if keyword in found:
            values = found[keyword]
            told[keyword] = values if keyword == "identityfile" else values[0]
    if str(told.get("port", "")).isdecimal():
        told["port"] = int(told["port"][:9])
    return told


def _walk(
    files: Files,
    name: str,
    host: str,
    found: dict[str, list[str]],
    inside: tuple[str, ...],
    *,
    live: bool,
) -> None:
    """One file. Host and Match of an included file end with it; outside a match nothing counts."""
    active = live
    for number, text in files.lines.get(name, ()):
        files.steps += 1
        if files.steps > STEPS:
            return
        keyword, values = split(text)
        if not keyword:
            continue
        _check(files, keyword, values, Line(number, text), name)
        if keyword == "host":
            active = live and matches(values, host)
        elif keyword == "match":
            active = live and _match(files, values, host, text)
        elif keyword == "include":
            _include(files, values, host, found, (*inside, name), Line(number, text), active)
        elif active and values:
            if keyword == "identityfile":
                found.setdefault(keyword, []).append(values[0])
            else:
                found.setdefault(keyword, [" ".join(values)])


def _include(
    files: Files,
    values: list[str],
    host: str,
    found: dict[str, list[str]],
    inside: tuple[str, ...],
    line: Line,
    active: bool,
) -> None:
    for value in values:
        names = files.named(value)
        if not names:
            files.unmatched.setdefault(value, None)
        for other in names:
            if other in inside:
                what = f"recursive include of {other}"
                files.problems.setdefault(Problem(what, inside[-1], line.number, line.text.strip()))
            elif len(inside) < DEPTH_MAX:
                _walk(files, other, host, found, inside, live=active)


def _match(files: Files, values: list[str], host: str, text: str) -> bool:
    words = [value.lower() for value in values]
    if words == ["all"]:
        return True
    if len(words) == 2 and words[0] in ("host", "originalhost"):
        return matches(values[1].split(","), host)
    if text.strip() not in files.opaque:
        files.opaque.append(text.strip())
    return False


def _check(files: Files, keyword: str, values: list[str], line: Line, name: str) -> None:
    what = ""
    if keyword not in KEYWORDS:
        what = f"bad configuration option {keyword}"
    elif not values:
        what = f"{keyword} without a value"
    elif _quotes(line.text) % 2:
        what = "quotes that are not closed"
    elif keyword == "port" and not (values[0].isdecimal() and 0 < int(values[0][:9]) < 65536):
        what = f"bad port {values[0]}"
    if what and len(files.problems) < 50:
        files.problems.setdefault(Problem(what, name, line.number, line.text.strip()))


def _quotes(text: str) -> int:
    """Double quotes of a line that no backslash takes the meaning from."""
    return len(re.findall(r'(?<!\\)"', text))


def _problems(files: Files, report: Report) -> None:
    report.facts["problems"] = [problem.what for problem in files.problems]
    for problem in files.problems:
        recursive = problem.what.startswith("recursive")
        means = " (Too many recursive configuration includes)" if recursive else ""
        report.add(REFUSED, f"{problem.what} in {problem.file}: OpenSSH refuses the whole "
                   f"configuration{means}",
                   f"{problem.file}, pasted line {problem.line}: {problem.text}")  # fmt: skip


def _say(settings: dict[str, dict[str, Any]], files: Files) -> str:
    told = "; ".join(f"{host}: {_words(one)}" for host, one in list(settings.items())[:6])
    count = f"{len(settings)} host{'s' * (len(settings) != 1)} found"
    if not files.problems and loops(settings):
        circle = loops(settings)[0]
        return (f"{count}, but ProxyJump leads in a circle ({' to '.join([*circle, circle[0]])}): "
                "these hosts cannot be reached that way.")  # fmt: skip
    if not files.problems:
        return f"{told or count}. ssh -G HOST tells the same."
    first = next(iter(files.problems))
    return (f"{count}, but {first.what} ({first.file}): OpenSSH refuses the whole configuration, "
            f"so no connection will work until that line goes. Then: {told}.")  # fmt: skip


def _words(one: dict[str, Any]) -> str:
    parts = [str(one["user"])] if "user" in one else []
    parts += [f"port {one['port']}"] if "port" in one else []
    parts += [f"key {key}" for key in one.get("identityfile", ())]
    parts += [f"jump {one['proxyjump']}"] if "proxyjump" in one else []
    return ", ".join(parts) or "defaults"
