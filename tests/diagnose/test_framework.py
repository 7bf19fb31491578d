"""Opening, detecting, cutting and printing: what all readers share."""

# ruff: noqa: E501 - pasted output is as wide as its program prints it

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from console.diagnose import detect, render
from console.diagnose.command import Diagnosis, diagnose
from console.diagnose.text import open_input
from inventory.errors import UsageError
from probes.event import Severity
from tests.diagnose.support import DATA, only, part, path, ticket

LOST = "[ 100.0] NVRM: Xid (PCI:0000:52:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
LSPCI = "52:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n"


def written(raw: bytes) -> Diagnosis:
    """Bytes through a file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "paste"
        file.write_bytes(raw)
        return diagnose([open_input(str(file))])


def command(
    *arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None
) -> tuple[int, str, str]:
    argv = [sys.executable, "-m", "console.cli", "diagnose", *arguments]
    done = subprocess.run(argv, input=stdin, capture_output=True, check=False, timeout=250, env=env)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


# ------------------------------------------------------------------------------------ opening


@pytest.mark.parametrize("raw", [b"", b"\n\n", b"hello world\n", bytes(range(256)) * 300,
                                 b"\x7fELF" + b"\0" * 5000, "ünïcödé, nothing known".encode()])  # fmt: skip
def test_what_nobody_knows_is_unknown_and_says_what_is_known(raw: bytes) -> None:
    diagnosis = ticket(raw)
    assert diagnosis.verdict is Severity.UNKNOWN
    assert "not recognised" in diagnosis.say
    assert "kernel-log" in only(diagnosis).unknown[0]


def test_exit_codes_and_messages() -> None:
    assert command("-", stdin=bytes(range(256)) * 99)[0] == 3
    assert command("-", stdin=LOST.encode())[0] == 2
    code, out, err = command("/nowhere/at/all")
    assert (code, out, err.count("\n")) == (64, "", 1)
    assert "/nowhere/at/all" in err
    code, _, err = command(str(DATA))
    assert code == 64
    assert "directory" in err
    code, _, err = command("--as", "kernel-lg", "-", stdin=b"x")
    assert code == 64
    assert "did you mean kernel-log" in err
    assert command()[0] == 64
    assert command("-", "-")[0] == 64


def test_gzip_is_unpacked_and_a_broken_one_read_as_far_as_it_goes() -> None:
    raw = gzip.compress(LOST.encode() * 2000)
    assert written(raw).verdict is Severity.CRITICAL
    filler = "".join(f"{random.Random(n).randbytes(40).hex()}\n" for n in range(2000))
    cut = written(gzip.compress(LOST.encode() + filler.encode())[:-2000])
    assert cut.verdict is Severity.CRITICAL
    assert any("stopped early" in sentence for sentence in only(cut).unknown)


def test_a_file_name_decides_nothing(tmp_path: Path) -> None:
    file = tmp_path / "nvidia-smi.xml.json"
    file.write_text(LOST)
    assert only(diagnose([open_input(str(file))])).kind == "kernel-log"


def test_a_few_zero_bytes_of_a_crash_do_not_hide_a_log() -> None:
    assert ticket(LOST.encode() * 40 + b"\0" * 20 + LOST.encode()).verdict is Severity.CRITICAL


# ---------------------------------------------------------------------------------- detecting


@pytest.mark.parametrize(
    "name", sorted(p.stem for p in DATA.glob("*.*") if p.stem not in ("index", "node_facts"))
)
def test_every_case_is_recognised(name: str) -> None:
    assert all(one.kind for one in diagnose([open_input(str(path(name)))]).inputs)


def test_kinds_of_the_help_are_the_registered_ones() -> None:
    from console.cli import KINDS

    assert set(KINDS.split(", ")) == set(detect.kinds())


def test_a_forced_kind_is_taken() -> None:
    assert only(ticket("nothing like it", "slurm")).kind == "slurm"
    with pytest.raises(UsageError, match="did you mean slurm"):
        detect.known_kind("slrum")


def test_every_paper_rule_can_be_explained() -> None:
    from probes.checks import RULES
    from probes.checks.explain import explain
    from probes.rules import load_rules

    rules = detect.paper_rules()
    assert len({rule.id for rule in rules} | {rule.id for rule in RULES}) == len(rules) + len(
        {rule.id for rule in RULES}
    ), "a paper rule must not take the id of a live one"
    for rule in rules:
        assert rule.title in explain(rule.id, (*RULES, *rules), load_rules())
        for limit in rule.limits:
            assert load_rules().limit(limit).name == limit


def test_paper_rules_say_who_stands_behind_them() -> None:
    from probes.sources import cited

    own = ("our estimate", "our rule", "our deadline", "field case", "nvml.h", "Linux", "NVIDIA",
           "nvidia-smi", "as ib.")  # fmt: skip
    for rule in detect.paper_rules():
        assert cited(rule.source) or any(word in rule.source for word in own), rule.id


# ------------------------------------------------------------------------------------ cutting


def test_prompts_give_hosts_and_pieces_their_lines() -> None:
    text = (
        f"root@gpu-a01:~# dmesg | tail\n{LOST}root@gpu-a02:~# dmesg | tail\n{LOST}"
        f"ops@login$ lspci -d 10de:\n{LSPCI}"
    )
    diagnosis = ticket(text)
    assert [(one.kind, one.lines) for one in diagnosis.inputs] == [
        ("kernel-log", "2-2"), ("kernel-log", "4-4"), ("host", "6-6"),
    ]  # fmt: skip


def test_fences_and_rules_cut_and_unknown_parts_go_with_the_one_before() -> None:
    diagnosis = ticket(f"Hi,\n\n```\n{LSPCI}```\n---\n1\n---\n{LOST}\n")
    assert [one.kind for one in diagnosis.inputs] == ["host", "kernel-log"]
    assert part(diagnosis, "host").facts["nvml_gpus"] == 1


def test_a_blank_line_before_another_format_cuts() -> None:
    sinfo = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu*         up   infinite      2   idle n[1-2]\n"
    diagnosis = ticket(f"{LOST}\n{sinfo}\n{LSPCI}")
    assert [one.kind for one in diagnosis.inputs] == ["kernel-log", "slurm", "host"]


def test_the_worst_part_is_the_verdict_and_speaks() -> None:
    diagnosis = ticket(f"{LSPCI}---\n{LOST}")
    assert diagnosis.verdict is Severity.CRITICAL
    assert "0000:52:00" in diagnosis.say
    assert diagnosis.drain == "now"


# ------------------------------------------------------------------------------------ printing


def test_text_has_glyph_word_evidence_and_no_colour_in_a_pipe() -> None:
    code, out, err = command("-", stdin=LOST.encode())
    assert (code, err) == (2, "")
    assert out.startswith("✗ critical  stdin  kernel-log")
    assert "| [ 100.0] NVRM: Xid (PCI:0000:52:00): 79" in out
    assert "next: " in out
    assert "\x1b" not in out


def test_ascii_terminals_get_ascii_glyphs() -> None:
    env = {"PATH": "/usr/bin", "PYTHONIOENCODING": "ascii", "HOME": "/tmp"}
    _, out, _ = command("-", stdin=LOST.encode(), env=env)
    assert out.startswith("X critical")
    assert out.isascii()


def test_colour_is_for_terminals_that_want_it() -> None:
    line = next(render.lines(ticket(LOST), render.Style(colour=True, unicode=True)))
    assert line.startswith("\x1b[1;31m✗ critical\x1b[0m")
    assert render._colour({"TERM": "xterm"}, terminal=True)
    assert not render._colour({"TERM": "xterm", "NO_COLOR": "1"}, terminal=True)
    assert not render._colour({"TERM": "dumb"}, terminal=True)
    assert not render._colour({"TERM": "xterm"}, terminal=False)


def test_json_is_what_the_schema_says() -> None:
    from console.output import schema

    code, out, _ = command("--json", "-", stdin=LOST.encode())
    document = json.loads(out)
    assert code == 2
    assert document["verdict"] == "critical"
    assert document["inputs"][0]["findings"][0]["rule"] == "xid.79"
    defined = schema()["$defs"]
    assert isinstance(defined, dict)
    assert set(document) == set(defined["Diagnosis"]["properties"])
    assert set(document["inputs"][0]) == set(defined["Part"]["properties"])


# ------------------------------------------------------------------------------------ streaming


@pytest.mark.parametrize(
    ("kind", "line"),
    [("kernel-log", "[{0}.0] usb 1-1: new device number {0}\n"),
     ("nccl-debug", "gpu-a01:2100:{0} [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"),
     ("drain", "evicting pod team-a/infer-{0}\n")],
)  # fmt: skip
def test_large_inputs_stream_in_bounded_memory(kind: str, line: str, tmp_path: Path) -> None:
    """32 MB are read in less memory than the file has."""
    file = tmp_path / "large"
    with file.open("w") as out:
        if kind == "kernel-log":
            out.write(LOST)
        for number in range(32_000_000 // len(line)):
            out.write(line.format(number))
    code = (
        "from tests import peak; from console.diagnose import detect; detect.readers(); "
        "from console.diagnose.command import diagnose; "
        "from console.diagnose.text import open_input; "
        "base = peak.mark(); "
        f"found = diagnose([open_input({str(file)!r})]); "
        "print(found.inputs[0].kind, peak.grown_kib(base))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    told, grown_kib = done.stdout.split()
    assert told == kind
    assert int(grown_kib) < 30_000


def test_a_list_of_names_does_not_hide_what_the_rest_tells() -> None:
    names = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-1111-1111-1111-111111111111)\n"
    app = "[ 9.0] NVRM: Xid (PCI:0000:52:00): 31, pid=1, name=python3, MMU Fault\n"
    assert ticket(names).verdict is Severity.UNKNOWN
    together = ticket(f"{names}---\n{app}")
    assert len(together.inputs) == 2
    assert together.verdict is ticket(app).verdict
    assert "31" in together.say


def test_a_training_log_below_a_table_is_its_own_part() -> None:
    scontrol = "NodeName=n1 Arch=x86_64 State=IDLE Partitions=gpu\n"
    watchdog = "[rank5]:[E303 ProcessGroupNCCL.cpp:616] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
    kinds = [one.kind for one in ticket(f"{scontrol}\nTraining log:\n{watchdog}{watchdog}").inputs]
    assert kinds == ["slurm", "nccl-debug"]


@pytest.mark.parametrize("lead", ["> ", ">> ", "    ", "\t"])
def test_quoted_and_indented_pastes_are_read(lead: str) -> None:
    table = (
        "NAME      STATUS     ROLES    AGE   VERSION\ngpu-a02   NotReady   <none>   10d   v1.31.4\n"
    )
    for text in (LSPCI.replace("rev a1", "rev ff"), table, "NodeName=n1 Arch=x State=DOWN\n"):
        plain = ticket(text)
        quoted = ticket("".join(f"{lead}{line}\n" for line in text.splitlines()))
        assert quoted.verdict is plain.verdict
        assert only(quoted).kind == only(plain).kind


@pytest.mark.parametrize(
    "prompt",
    ["root@gpu-a07:~# ", "[root@gpu-a07 ~]# ", "ops@gpu-a07:/var/log$ ", "gpu-a07$ ",
     "(base) ops@gpu-a07:~$ ", "[ops@gpu-a07.site.example ~]$ "],
)  # fmt: skip
def test_prompts_of_many_shells(prompt: str) -> None:
    diagnosis = ticket(f"{prompt}ps aux\n{PS}")
    assert {f.node for f in diagnosis.inputs[0].findings} == {"gpu-a07"}


PS = "  PID STAT WCHAN                COMMAND\n 3301 D    rpc_wait_bit_killable python3\n"
