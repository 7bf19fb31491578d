"""Who a process is: owner, program, job, rank, container, age.

Command lines and environments may hold secrets. Only the program and its script or module leave
the node, and of the environment only the names in ENVIRONMENT.
"""

import os
import re

from probes.node.context import Stuck

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context

    Values = dict[str, object]

JOB_NAMES = ("SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID", "LSB_JOBID")
RANK_NAMES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
RAS_NAMES = ("NCCL_RAS_ADDR", "NCCL_RAS_ENABLE")
ENVIRONMENT = frozenset(JOB_NAMES + RANK_NAMES + RAS_NAMES)
"""The only names read from /proc/<pid>/environ: everything else there may be a secret."""

TAKES_VALUE = ("-W", "-X", "-Q")
"""Options of python whose value is the next word."""

COMMAND_CHARS = 60
VALUE_CHARS = 64
CONTAINER_CHARS = 12
"""Of a container's 64 digits, as docker ps and crictl ps print them."""

START_FIELD = 19
"""Of /proc/<pid>/stat behind the name: ticks between boot and the start (proc(5), field 22)."""

USERS = "users"
"""Where the names of users are kept between looks."""

CGROUP_JOB = re.compile(r"/job_(\d+)(?:/|$)")
_CONTAINER = re.compile(r"(?:docker|cri-containerd|crio|libpod|containerd)?[-/:]([0-9a-f]{64})")
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def identity(ctx: "Context", pid: "str") -> "Values":
    """What can be told of a live process; what cannot be read is missing."""
    found: "Values" = {}
    command = command_name(ctx.read_bytes("proc", pid, "cmdline") or b"")
    command = command or (ctx.read("proc", pid, "comm") or "")
    if command:
        found["command"] = _plain(command)[:COMMAND_CHARS]
    found.update(status(ctx, pid))
    raw = ctx.read_bytes("proc", pid, "environ")
    names = allowed(raw or b"")
    group = (ctx.read("proc", pid, "cgroup") or "").replace("\n", "/\n")
    job = _first(names, JOB_NAMES) or _group(CGROUP_JOB, group)
    if raw is not None or job:
        found["job"] = job
    if raw is not None:
        found["rank"] = _first(names, RANK_NAMES)
    pod, container = _group(_POD, group), _group(_CONTAINER, group)
    if pod:
        found["pod"] = pod.replace("_", "-")
    if container:
        found["container"] = container[:CONTAINER_CHARS]
    return found


def age_s(ctx: "Context", stat: "str") -> "float | None":
    """How long a process runs, from its stat and the uptime."""
    fields = stat.rpartition(")")[2].split()
    try:
        uptime = float((ctx.read("proc/uptime") or "").split()[0])
        age = uptime - int(fields[START_FIELD]) / float(os.sysconf("SC_CLK_TCK"))
    except (IndexError, ValueError):
        return None
    return round(max(0.0, age), 1)


def allowed(raw: "bytes") -> "dict[str, str]":
    """The allow-listed part of an environ file's bytes. Everything else is dropped here."""
    found = {}
    for entry in raw.split(b"\0"):
        name, _, value = entry.decode("utf-8", "replace").partition("=")
        if name in ENVIRONMENT:
            found[name] = _plain(value)[:VALUE_CHARS]
    return found


def command_name(raw: "bytes") -> "str":
    """Program and script or module of a cmdline file's bytes: "python3 train.py".

    Options and their values never leave: they may hold tokens.
    """
    words = [word.decode("utf-8", "replace") for word in raw.split(b"\0") if word]
    title = words[0].split() if len(words) == 1 else words[:1]
    if not title or title[0].startswith("--") or "=" in title[0]:
        return ""
    program = os.path.basename(title[0])
    if len(title) > 1:
        return program  # a title that it gave itself: all of its arguments may be in there
    if not program.startswith(("python", "bash", "sh", "perl", "ruby", "node", "java")):
        return program
    for before, word in zip(words, words[1:]):
        if before == "-c":
            break
        if before == "-m" or not (word.startswith("-") or before in TAKES_VALUE):
            return "%s %s" % (program, os.path.basename(word))
    return program


def status(ctx: "Context", pid: "str") -> "Values":
    """Owner, and the pid inside its own namespace where that is another one."""
    found: "Values" = {}
    for line in (ctx.read("proc", pid, "status") or "").splitlines():
        words = line.split()
        if line.startswith("Uid:") and len(words) > 1:
            found["user"] = _user(ctx, words[1])
        elif line.startswith("NSpid:") and len(words) > 2 and words[-1].isdigit():
            found["inner_pid"] = int(words[-1])
    return found


def _user(ctx: "Context", uid: "str") -> "str":
    """The owner's name, or number. Name services may hang, so the look-up is booked and kept."""
    memory = ctx.memory(USERS)
    if uid not in memory:
        memory[uid] = _name_of(ctx, int(uid)) if uid.isdigit() else uid[:VALUE_CHARS]
    return str(memory[uid])


def _name_of(ctx: "Context", uid: "int") -> "str":
    import pwd

    try:
        with ctx.busy("getpwuid", "name service"):
            return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError, Stuck):
        return str(uid)


def _group(pattern: "re.Pattern[str]", text: "str") -> "str":
    found = pattern.search(text)
    return found.group(1) if found else ""


def _first(names: "dict[str, str]", order: "tuple[str, ...]") -> "str":
    return next((names[name] for name in order if names.get(name)), "")


def _plain(text: "str") -> "str":
    return _CONTROL.sub(" ", text)
