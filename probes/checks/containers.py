"""GPUs for containers: runtimes as peers have them, CDI specifications against what exists."""

from __future__ import annotations

from collections.abc import Iterator

from probes.checks.rule import Look, Rule
from probes.drift_facts import flags
from probes.event import Action, Finding, Severity
from probes.reading import whole

RUNTIME = Rule(
    id="container.setup",
    title="A container engine is not set up as on its peers",
    severity=Severity.WARN,
    reads="daemon.json, containerd's and CRI-O's configuration, their sockets, installed runtimes, "
    "here and on the other nodes of the role",
    cause="the node missed a configuration run, or an upgrade replaced the file",
    action=Action.FIX_CONFIG,
    next_step="nvidia-ctk runtime configure --runtime=ENGINE, then restart the engine",
    source="gpud, EKS and imbue demand NVIDIA's runtime everywhere; we ask the peers: our rule",
    others="gpud (socket, default runtime), EKS, imbue: error",
    example="containerd does not know the runtime nvidia; it does on 15 of 15 other nodes",
    limits=("service.peers_share",),
)
CDI = Rule(
    id="container.cdi",
    title="The CDI specification does not fit driver or GPUs",
    severity=Severity.WARN,
    reads="/etc/cdi and /run/cdi for nvidia.com; the loaded driver; GPUs of the node",
    cause="the specification was not written anew after a driver upgrade or a change of GPUs",
    action=Action.FIX_CONFIG,
    next_step="nvidia-ctk cdi generate --output=FILE (or restart nvidia-cdi-refresh); containers "
    "fail to start with paths that do not exist",
    source="our rule: the files name libraries by driver version and devices by number",
    others="gpud, EKS test it by starting a container",
    example="/etc/cdi/nvidia.yaml names driver 570.124.06, 580.95.05 is loaded",
)
RULES = (RUNTIME, CDI)

SAY = {
    "docker_nvidia": "docker does not know the runtime nvidia",
    "containerd_nvidia": "containerd does not know the runtime nvidia",
    "crio_nvidia": "CRI-O does not know the runtime nvidia",
    "docker_socket": "docker has no socket",
    "containerd_socket": "containerd has no socket",
    "crio_socket": "CRI-O has no socket",
    "toolkit": "NVIDIA's container toolkit is not installed",
    "pyxis": "Slurm does not load pyxis",
    "enroot": "enroot is not installed",
}
"""Fact -> what its absence means. Services that do not run are told by the service rules."""
OTHERS = 2


def check(look: Look) -> Iterator[Finding]:
    """Nothing is demanded of a node whose peers have none of it."""
    if look.facts.get("containers") is None:
        return
    yield from _setup(look)
    yield from _cdi(look)


def _setup(look: Look) -> Iterator[Finding]:
    here = flags(look.facts)
    limit = look.rules.limit("service.peers_share")
    for fact, say in SAY.items():
        engine = fact.partition("_")[0]
        mine = here.get(f"container.{fact}")
        runs = here.get(f"service.{engine}") is True
        if mine is True or (mine is None and not (runs and fact.endswith("_nvidia"))):
            continue  # without a configuration file an engine that runs knows nothing either
        if fact.endswith("_socket") and not runs:
            continue  # an engine that does not run has none
        share, others = look.peers.drift.others(f"container.{fact}", mine)
        if others >= OTHERS and share >= limit.value:
            rest = f"{round(share * others)} of {others} other nodes of the role differ"
            here_is = f"{fact}: {'no configuration' if mine is None else 'no'}; {rest}"
            yield RUNTIME.finding(
                look, f"{say}, unlike its peers", (here_is,), device=fact, label=engine,
                limit=limit, value=round(share, 3),
            )  # fmt: skip


def _cdi(look: Look) -> Iterator[Finding]:
    driver = look.facts.value("versions", "", "driver")
    driver = driver or look.facts.value("inventory", "", "driver_version")
    sample = look.facts.get("containers")
    for row in sample.rows if sample is not None else ():
        named = row.get("cdi_driver")
        if named and driver and named != driver:
            yield CDI.finding(
                look, f"CDI names driver {named}, {driver} is loaded",
                (f"{row.get('file')} names libraries of {named}; driver {driver}",),
                device=str(row.get("file", "")), label="CDI", value=str(named),
            )  # fmt: skip
    yield from _unnamed(look)


def _unnamed(look: Look) -> Iterator[Finding]:
    """GPUs that exist and no specification names. Which ones exist is asked of the driver."""
    told = look.facts.value("containers", "", "cdi_minors")
    here = {
        minor: look.facts.gpu_label(device)
        for device, sample in look.facts.devices("inventory")
        if device and (minor := whole(sample.values.get("minor"))) is not None
    }
    if not isinstance(told, str) or not told:
        return
    named = {int(word) for word in told.split(",") if word.isdecimal()}
    lacking = [label for minor, label in sorted(here.items()) if minor not in named]
    if lacking:
        yield CDI.finding(
            look, f"CDI names {len(here) - len(lacking)} of {len(here)} GPUs, not "
            f"{', '.join(lacking[:4])}{' ...' * (len(lacking) > 4)}",
            (f"CDI names /dev/nvidia{{{told}}}",), device="cdi", label="CDI", value=len(lacking),
        )  # fmt: skip
