"""A test inside a container: what goes in front of it, and what ends it for certain.

enroot, apptainer, singularity, pyxis (srun --container-image) and mpirun run the test below the
process we start, or end it on SIGTERM. `docker run`, `podman run` and `nerdctl run` hand it to a
daemon: it then gets a name, an init that passes signals on, and `rm -f NAME` for the end.
"""

import os
import secrets

from probes.node.jobs import Refused

DAEMONS = frozenset(("docker", "podman", "nerdctl"))
SPREADING = frozenset(("mpirun", "mpiexec", "mpiexec.hydra", "srun", "prun"))
"""Programs that start the test several times: each process then has one GPU."""
PRIVILEGE = frozenset(("sudo", "doas"))
NEVER = frozenset(("-d", "--detach", "-t", "--tty", "-it", "-ti", "-dit"))
"""No terminal, and not in the background."""


def wrapped(
    prefix: "list[str]", env: "dict[str, str]", argv: "list[str]"
) -> "tuple[list[str], list[str]]":
    """(argv of the whole, argv that ends it or []). Raises Refused for what cannot be ended.

    With a prefix the environment goes through `env`, as containers do not inherit it.
    """
    if not prefix:
        return argv, []
    inside = ["env"] + ["%s=%s" % pair for pair in sorted(env.items())] + argv
    at = _program(prefix)
    if os.path.basename(prefix[at]) not in DAEMONS:
        return prefix + inside, []
    if "run" not in prefix[at + 1 :]:
        raise Refused(
            "command: %s %s leaves the test running when the session ends; use run --rm"
            % (prefix[at], " ".join(prefix[at + 1 : at + 2]))
        )
    run = prefix.index("run", at + 1) + 1
    wrong = [word for word in prefix[run:] if word in NEVER]
    if wrong:
        raise Refused("command: leave %s out: the test has no terminal and must be seen" % wrong[0])
    name, extra = _name(prefix[run:])
    for flag in ("--rm", "--init"):
        if flag not in prefix[run:]:
            extra.append(flag)
    return prefix[:run] + extra + prefix[run:] + inside, prefix[: at + 1] + ["rm", "-f", name]


def spreads(prefix: "list[str]") -> "bool":
    """Whether it starts one process for each GPU."""
    return bool(prefix) and os.path.basename(prefix[_program(prefix)]) in SPREADING


def contained(prefix: "list[str]") -> "bool":
    """Whether the test sees other files than we do."""
    return bool(prefix) and not (
        spreads(prefix) and not any(word.startswith("--container") for word in prefix)
    )


def _program(prefix: "list[str]") -> "int":
    """Where the program stands: after `sudo -n`."""
    at = 0
    if os.path.basename(prefix[0]) in PRIVILEGE:
        at = next((n for n, word in enumerate(prefix) if n and not word.startswith("-")), 0)
    return at


def _name(options: "list[str]") -> "tuple[str, list[str]]":
    """The container's name, and the option that gives it where the site gives none."""
    for number, word in enumerate(options):
        if word.startswith("--name="):
            return word.partition("=")[2], []
        if word == "--name" and options[number + 1 :]:
            return options[number + 1], []
    name = "gpuconsole-" + secrets.token_hex(8)
    return name, ["--name", name]
