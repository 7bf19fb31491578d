"""Active test "gpu_test": each GPU of the node alone, all of them side by side.

Arguments of the order: torch_python (needed), command, env, force, timeout_s as of test "nccl";
  seconds  per figure, default 1.5
  what     some of gemm_bf16 gemm_fp8 hbm_copy h2d d2h p2p; default all
Samples of probe "gpu_test" at the end: a device for each GPU (PCI address), one for each pair
("0000:1b:00.0>0000:43:00.0"), then "summary". Power, clock, temperature and reasons are medians
over the bf16 GEMM, from NVML. Without a GPU device "cpu", which nobody judges.
"""

import re

from probes.node import order, wrapped
from probes.node.gpu_watch import Watch
from probes.node.jobs import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from probes.node.context import Context
    from probes.node.jobs import Job
    from probes.node.order import Args

METRICS = {
    "index": ("", "info", "NVML's index of the GPU"),
    "gemm_bf16_tflops": ("TFLOPS", "gauge", "product of two bf16 matrices, dense"),
    "gemm_fp8_tflops": ("TFLOPS", "gauge", "the same in fp8"),
    "hbm_copy_gb_s": ("GB/s", "gauge", "copy inside the memory, bytes read and written"),
    "h2d_gb_s": ("GB/s", "gauge", "from pinned host memory, one GPU at a time"),
    "d2h_gb_s": ("GB/s", "gauge", "to pinned host memory, one GPU at a time"),
    "p2p_gb_s": ("GB/s", "gauge", "copy from one GPU to another, one way, one pair at a time"),
    "power_w": ("W", "gauge", "power during the bf16 GEMM, median"),
    "sm_clock_mhz": ("MHz", "gauge", "SM clock during the bf16 GEMM, median"),
    "temp_c": ("°C", "gauge", "core temperature during the bf16 GEMM, median"),
    "reasons": ("", "gauge", "clocks event reasons of most readings during the bf16 GEMM"),
    "energy_j": ("J", "gauge", "energy of the bf16 GEMM phase"),
    "pcie_gen": ("", "info", "PCIe generation during the host copies"),
    "pcie_width": ("", "info", "PCIe lanes during the host copies"),
    "error": ("", "info", "why a figure of this GPU is missing"),
}
UNITS = {"gemm_bf16": "tflops", "gemm_fp8": "tflops"}
WHAT = ("gemm_bf16", "gemm_fp8", "hbm_copy", "h2d", "d2h", "p2p")
SECONDS = 1.5
SECONDS_MOST = 600.0
CPU = "cpu"
GPUS_MOST = 64
UNSEEN = "torch does not see this GPU"

ENGINE = re.compile(r"^# engine (torch-\w+) torch (\S+)")
GPU = re.compile(r"^# gpu (-?\d+) (\S+) (.*)")
PHASE = re.compile(r"^# (begin|end) (\w+)")
FIGURE = re.compile(r"^# figure (-?\d+) (\w+) ([0-9.e+-]+)")
PAIR = re.compile(r"^# pair (\d+) (\d+) ([0-9.e+-]+) ([01])")
TROUBLE = re.compile(r"^# trouble (-?\d+) (\w+) (.*)")
FAILED = re.compile(r"^# failed (.*)")


def run(job: "Job", args: "Args") -> "None":
    """Run the test to its end. Raises Refused before it."""
    gpus = order.gpu_count(job.ctx)
    if not args.get("force"):
        order.check_idle(job.ctx, gpus)
    argv, env, job.bury = command(args, gpus)
    timeout_s = order.number(args, "timeout_s", order.TIMEOUT_S, order.TIMEOUT_MOST_S)
    job.state("started", "figures of %s, at most %g s" % (shown(gpus), timeout_s))
    test = Test(job)
    try:
        for line in job.lines(argv, timeout_s, env):
            test.feed(line)
    except OSError as error:
        raise Refused("%s cannot start: %s" % (argv[0], error.strerror or error)) from error
    finally:
        test.watch.stop()
    job.bury = []
    test.finish(missing(job.ctx, test, args))


def shown(gpus: "int | None") -> "str":
    """For the operator."""
    return "%d GPUs" % gpus if gpus else "this machine's CPU: NVML lists no GPU"


def command(args: "Args", gpus: "int | None") -> "tuple[list[str], dict[str, str], list[str]]":
    """(argv, environment, what ends it in a container). Raises Refused."""
    from probes.node import gpu_torch, gpu_worker, torch_place

    if not args.get("torch_python"):
        raise Refused("torch_python is not set for this node's group")
    seconds = order.number(args, "seconds", SECONDS, SECONDS_MOST)
    what = order.words(args, "what") or list(WHAT)
    unknown = [name for name in what if name not in WHAT]
    if unknown:
        raise Refused("what: %.60r is none of %s" % (unknown[0], ", ".join(WHAT)))
    flags = ["--seconds", "%g" % seconds, "--what", ",".join(what)]
    flags += ["--need"] if gpus else []
    flags += ["--worker", order.program(torch_place, gpu_worker)]
    env = dict(order.quiet(), **order.environment(args))
    program = [str(args["torch_python"]), "-c", order.program(gpu_torch)]
    argv, bury = wrapped.wrapped(order.words(args, "command"), env, program + flags)
    return argv, env, bury


class Test:
    """What the child said so far, and what NVML said meanwhile."""

    def __init__(self, job: "Job") -> "None":
        self.job = job
        self.watch = Watch(job.ctx)
        self.engine = self.version = self.failed = self.tail = ""
        self.devices: "dict[int, str]" = {}
        """CUDA's index -> PCI address."""
        self.values: "dict[str, dict[str, object]]" = {}
        self.pairs: "dict[str, dict[str, object]]" = {}
        self.figures = 0

    def feed(self, line: "str") -> "None":
        """One line of the child."""
        for form, take in (
            (FIGURE, self._figure), (PAIR, self._pair), (PHASE, self._phase), (GPU, self._gpu),
            (TROUBLE, self._trouble), (ENGINE, self._engine), (FAILED, self._failed),
        ):  # fmt: skip
            found = form.match(line)
            if found:
                take(*found.groups())
                break
        self.tail = line.strip() or self.tail

    def _engine(self, engine: "str", version: "str") -> "None":
        self.engine, self.version = engine, version

    def _failed(self, why: "str") -> "None":
        self.failed = why

    def _gpu(self, index: "str", address: "str", name: "str") -> "None":
        if len(self.devices) < GPUS_MOST:
            device = address if address != "?" else "index:%s" % index
            self.devices[int(index)] = device
            self.values[device] = {"id": self.job.name, "name": name}
            if int(index) >= 0:
                self.values[device]["index"] = int(index)

    def _device(self, index: "str") -> "dict[str, object]":
        device = self.devices.setdefault(int(index), "index:%s" % index)
        return self.values.setdefault(device, {"id": self.job.name})

    def _figure(self, index: "str", what: "str", value: "str") -> "None":
        if what in WHAT:
            self._device(index)["%s_%s" % (what, UNITS.get(what, "gb_s"))] = float(value)
            self.figures += 1

    def _pair(self, source: "str", target: "str", value: "str", peer: "str") -> "None":
        names = [self.devices.get(int(one), "index:%s" % one) for one in (source, target)]
        rate = {"id": self.job.name, "p2p_gb_s": float(value), "peer": peer == "1"}
        self.pairs[">".join(names)] = rate
        self.figures += 1

    def _trouble(self, index: "str", what: "str", text: "str") -> "None":
        if int(index) >= 0 or -1 in self.devices:
            values = self._device(index)
            values.setdefault("error", ("%s: %s" % (what, text))[:300])
        else:
            self.failed = self.failed or "%s: %s" % (what, text)

    def _phase(self, edge: "str", what: "str") -> "None":
        if edge == "begin":
            self.watch.start(what)
            self.job.state("progress", what)
            return
        for device, seen in self.watch.stop().items():
            if device in self.values:
                self.values[device].update(seen)

    def finish(self, unseen: "list[str]") -> "None":
        """All GPUs, pairs, the summary and the last job frame: also of a test cut short."""
        lost = self._name(unseen)
        for device, figures in list(self.values.items()) + list(self.pairs.items()):
            self.job.sample(device, figures)
        assert self.job.child is not None
        rc = self.job.child.returncode
        error = self._why(rc)
        bad = lost + sum("error" in values for values in self.values.values())
        values: "dict[str, object]" = {"id": self.job.name, "ok": not error, "rc": rc, "bad": bad}
        values.update(engine=self.engine, version=self.version, gpus=len(self.values))
        if error:
            values["error"] = error[:400]
        self.job.sample("summary", values)
        said = "%d figures" % self.figures + ("; trouble on %d GPUs" % bad if bad else "")
        self.job.state("failed" if error else "done", error or said, rc)

    def _name(self, unseen: "list[str]") -> "int":
        """Give GPUs whose address CUDA did not tell the ones that are left; who has none is lost.

        Both are in the order of the bus. How many are lost without it being known which.
        """
        nameless = sorted(device for device in self.values if device.startswith("index:"))
        if len(nameless) == len(unseen):
            for device, address in zip(nameless, unseen):
                self.values[address] = self.values.pop(device)
                for pair in [one for one in self.pairs if device in one.split(">")]:
                    ends = [address if end == device else end for end in pair.split(">")]
                    self.pairs[">".join(ends)] = self.pairs.pop(pair)
        elif not nameless:
            for address in unseen:
                told: "dict[str, object]" = {"id": self.job.name, "error": UNSEEN}
                self.values[address] = told
        return max(0, len(unseen) - len(nameless)) if nameless else 0

    def _why(self, rc: "int") -> "str":
        if self.job.cancelled.is_set():
            return "cancelled"
        if self.job.timed_out.is_set():
            return "timed out after %d figures" % self.figures
        if self.failed or rc:
            return self.failed or "exit status %d: %s" % (rc, self.tail)
        return "" if self.figures else "it measured nothing: %s" % self.tail


def missing(ctx: "Context", test: "Test", args: "Args") -> "list[str]":
    """GPUs that NVML lists and torch has not, where all should be seen."""
    env = order.environment(args)
    chosen = any(name.endswith("VISIBLE_DEVICES") for name in env)
    if chosen or args.get("command") or test.engine != "torch-cuda" or ctx.nvml is None:
        return []
    return sorted(ctx.nvml.listed() - set(test.values))
