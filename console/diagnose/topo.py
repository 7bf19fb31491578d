"""`nvidia-smi topo -m`: how GPUs and network adapters reach each other.

The table is underlined with escape sequences even in a pipe and its columns are tabs, at places
two; tables that went through an editor have blanks instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from console.diagnose.nodes import parts
from console.diagnose.offline import limits
from console.diagnose.report import AFTER_JOBS, NO, Report, found
from console.diagnose.text import Text
from probes.event import Action, Finding, Severity
from probes.rule import Rule
from probes.sanitise import clean

KIND = "topo"
TITLE = "nvidia-smi topo -m"
STREAMS = False

NO_LINK = Rule(
    id="paper.topo_no_nvlink",
    title="One GPU has no NVLink path while its siblings have",
    severity=Severity.CRITICAL,
    reads="GPU columns of nvidia-smi topo -m",
    cause="its NVLinks are down, or its registration with the fabric failed",
    action=Action.DRAIN,
    next_step="nvidia-smi nvlink -s, the fabric state (nvidia-smi -q) and Xids of this GPU; drain",
    source="legend of nvidia-smi topo -m; at least 3 siblings with NVLink: our rule",
    others="GCM, OCI, SCK, gpud, AzHC, NVHV, imbue: any inactive link is an error",
    example="GPU3: SYS to GPU0-2, which have NV18 among them",
)
FEWER = Rule(
    id="paper.topo_fewer_nvlinks",
    title="A GPU is joined by fewer NVLinks than its siblings",
    severity=Severity.WARN,
    reads="GPU columns of nvidia-smi topo -m",
    cause="some of its links are down",
    action=Action.DRAIN,
    next_step="nvidia-smi nvlink -s and -e of this GPU; drain after the job, reset to retrain",
    source="legend of nvidia-smi topo -m; all pairs of a switched board have one number: our rule",
    others="GCM, OCI, SCK, gpud: any inactive link is an error",
    example="GPU5: NV17 to all siblings, which have NV18 among them",
)
RULES = (NO_LINK, FEWER)
FABRIC = 3
"""GPUs that must be joined each with each before a missing path is a fault, not a bridge."""
GANG = f"{AFTER_JOBS}; now for gang jobs"

_NAME = re.compile(
    r"(?:GPU|NIC|CPU)\d{1,4}$|(?:mlx\d|ib|roce|rdma|bnxt|hfi|irdma|rocep)[\w.]{0,40}$"
)
_GPU = re.compile(r"GPU(\d{1,4})$")
_CELL = re.compile(r"(?:X|SYS|NODE|PHB|PXB|PIX|PSB|C2C|NV\d{1,3}|SOC|N/A)$")
_LEGEND = re.compile(r"\s*(NIC\d{1,4}):\s*(\S{1,60})\s*$")
_NV = re.compile(r"NV(\d{1,3})$")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_ORDER = ("X", "PIX", "PXB", "PHB", "NODE", "SYS")
COLUMNS = 512


class Matrix(Struct):
    """One node's table."""

    columns: list[str] = field(default_factory=list)
    rows: dict[str, list[str]] = field(default_factory=dict)
    tails: dict[str, list[str]] = field(default_factory=dict)
    """Row -> what stands behind the matrix: CPU affinity, NUMA affinity, the GPU's own node."""
    nics: dict[str, str] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)

    @property
    def gpus(self) -> list[str]:
        """Rows of GPUs."""
        return [name for name in self.rows if _GPU.match(name)]

    def cell(self, row: str, column: str) -> str | None:
        """Path of a pair."""
        cells = self.rows.get(row, [])
        at = self.columns.index(column) if column in self.columns else len(cells)
        return cells[at] if at < len(cells) else None


def sniff(head: str) -> int:
    """A heading of GPUs and rows of paths."""
    matrix = parse(head.split("\n", 400)[:400])
    if matrix.rows:
        return 92
    return 30 if "traversing PCIe as well as" in head else 0


def parse(lines: Sequence[str]) -> Matrix:
    """The table in these lines; legend lines are no rows."""
    matrix = Matrix()
    for raw in lines:
        line = _ESCAPE.sub("", raw.rstrip("\r\n"))
        legend = _LEGEND.match(line)
        if legend is not None:
            matrix.nics[legend[1]] = legend[2]
            continue
        words = line.split()
        if not matrix.columns:
            matrix.columns = _heading(words)
        elif words and words[0] in matrix.columns and words[0] not in matrix.rows:
            _row(matrix, words, line)
    return matrix


def _heading(words: list[str]) -> list[str]:
    """Names up to the first that is no device; at least one GPU among them."""
    names: list[str] = []
    for word in words[:COLUMNS]:
        if not _NAME.match(word):
            break
        names.append(word)
    known = any(_GPU.match(name) for name in names) and len(names) == len(set(names))
    return names if known else []


def _row(matrix: Matrix, words: list[str], line: str) -> None:
    width = len(matrix.columns)
    cells = words[1 : 1 + width]
    if len(cells) < width or not all(_CELL.match(cell) for cell in cells):
        return
    name = words[0]
    matrix.rows[name] = cells
    matrix.lines[name] = " ".join(words)
    if "\t" in line:
        parts_ = [part.strip() for part in line.split("\t")]
        matrix.tails[name] = parts_[1 + width :]
    else:
        matrix.tails[name] = words[1 + width :]


def facts(matrix: Matrix) -> dict[str, Any]:
    """Pairs, adapters, affinities."""
    gpus = matrix.gpus
    pairs, numa, cpus, near = {}, {}, {}, {}
    for at, one in enumerate(gpus):
        for other in gpus[at + 1 :]:
            path = matrix.cell(one, other)
            if path is not None:
                pairs[f"{one[3:]}-{other[3:]}"] = path
        tail = matrix.tails.get(one, [])
        cpus[one] = _said(tail, 0)
        node = _said(tail, 1)
        numa[one] = int(node) if node is not None and node.isdigit() and len(node) < 6 else node
        paths = {nic: matrix.cell(one, nic) for nic in matrix.columns if not _GPU.match(nic)}
        ranked = sorted((_ORDER.index(p), n) for n, p in paths.items() if p in _ORDER)
        if ranked:
            best = ranked[0][0]
            near[one] = {"nics": [n for rank, n in ranked if rank == best], "path": _ORDER[best]}
    return {
        "gpus": len(gpus), "nics": matrix.nics or _own_nics(matrix), "gpu_pairs": pairs,
        "cpu_affinity": cpus, "numa": numa, "nearest_nics": near,
    }  # fmt: skip


def _own_nics(matrix: Matrix) -> dict[str, str]:
    """Older drivers head the columns with the adapters' own names."""
    return {name: name for name in matrix.columns if not _GPU.match(name)}


def _said(tail: list[str], at: int) -> str | None:
    return tail[at] if at < len(tail) and tail[at] not in ("", "N/A") else None


def _links(matrix: Matrix, gpu: str) -> dict[str, int]:
    """Other GPUs -> NVLinks to them, 0 for a path over PCIe."""
    found_: dict[str, int] = {}
    for other in matrix.gpus:
        path = matrix.cell(gpu, other)
        if other == gpu or path is None or path == "N/A":
            continue
        number = _NV.match(path)
        found_[other] = int(number[1]) if number else 0
    return found_


def judge(matrix: Matrix, node: str) -> list[Finding]:
    """GPUs that NVLink does not reach, or less than the others."""
    links = {gpu: _links(matrix, gpu) for gpu in matrix.gpus}
    joined = [gpu for gpu, to in links.items() if any(to.values())]
    dark = [gpu for gpu in links if gpu not in joined and links[gpu]]
    full = all(links[a].get(b, 0) for a in joined for b in joined if a != b)
    if len(joined) < FABRIC or not (full or len(joined) > len(dark) * 3):
        return []
    usual = Counter(n for gpu in joined for n in links[gpu].values() if n).most_common(1)[0][0]
    said = f"NV{usual}" if full else "NVLink"
    findings = []
    for gpu in dark:
        paths = sorted({p for other in joined if (p := matrix.cell(gpu, other)) is not None})
        findings.append(found(
            NO_LINK, f"GPU {gpu[3:]} has no NVLink path to any other GPU "
            f"({'/'.join(paths)} everywhere) while the other {len(joined)} have {said}",
            matrix.lines[gpu], *(matrix.lines[other] for other in joined[:3]), node=node,
            device=gpu, label=f"GPU {gpu[3:]}",
        ))  # fmt: skip
    return findings + (_fewer(matrix, links, joined, usual, node) if full else [])


def _fewer(
    matrix: Matrix, links: dict[str, dict[str, int]], joined: list[str], usual: int, node: str
) -> list[Finding]:
    """GPUs all of whose pairs have fewer links than the rest of a switched board."""
    findings = []
    for gpu in joined:
        numbers = {links[gpu][other] for other in joined if other != gpu}
        if max(numbers) < usual:
            findings.append(found(
                FEWER, f"GPU {gpu[3:]} is joined by NV{max(numbers)}, the others by NV{usual}",
                matrix.lines[gpu], node=node, device=gpu, label=f"GPU {gpu[3:]}",
                value=max(numbers),
            ))  # fmt: skip
    return findings


def _say(matrix: Matrix, findings: list[Finding]) -> str:
    if findings:
        return "; ".join(finding.say for finding in findings[:4])
    gpus = matrix.gpus
    paths = Counter(
        path for at, one in enumerate(gpus) for other in gpus[at + 1 :]
        if (path := matrix.cell(one, other)) is not None
    )  # fmt: skip
    told = ", ".join(f"{path} x {number}" for path, number in paths.most_common(4))
    if not any(_NV.match(path) for path in paths):
        return f"{len(gpus)} GPUs without NVLink among them (paths: {told or 'none'})"
    return f"{len(gpus)} GPUs, paths between them: {told}; no GPU stands out"


def read(text: Text) -> Report:
    """Every node's table; the raw text, because tabs are what parts the columns."""
    raw = [line[:20_000] for line in text.whole().split("\n")]
    report = Report(kind=KIND, measured=False)
    told: dict[str, dict[str, Any]] = {}
    says: list[str] = []
    for part in parts(raw, text.host):
        matrix = parse(part.lines)
        if not matrix.rows:
            continue
        report.measured = True
        findings = judge(matrix, clean(part.node))
        report.findings += findings
        told[part.node or "?"] = facts(matrix)
        says.append(f"{part.node}: " * bool(part.node) + _say(matrix, findings))
        if not any(_NV.match(cell) for row in matrix.rows.values() for cell in row):
            report.unknown.append(
                "whether these GPUs should have NVLink: the table does not name the product "
                "(nvidia-smi nvlink -s does); on an SXM board no NV# at all is a fault"
            )
    report.facts = next(iter(told.values())) if len(told) == 1 else {"nodes": told} if told else {}
    report.say = "; ".join(says[:6]) or "no topology table could be read in it"
    report.drain = _drain(report.findings)
    return report


def relate(report: Report, others: list[Report]) -> None:
    """The product, where another output of the same ticket names it: a board must have NVLink."""
    pairs = report.facts.get("gpu_pairs")
    if not isinstance(pairs, dict) or not pairs or any(_NV.match(p) for p in pairs.values()):
        return
    names = {
        str(gpu.get("name") or "") for other in others
        for gpu in _dicts(other.facts.get("gpus"))
    }  # fmt: skip
    products = [limits().product(None, name) for name in names if name]
    if products and all(p is not None and p.form == "sxm" for p in products):
        report.add(
            NO_LINK, f"none of {report.facts.get('gpus')} GPUs has an NVLink path, on an SXM board",
            *(f"{pair}: {path}" for pair, path in list(pairs.items())[:4]), max(names),
            cause="Fabric Manager or NVSwitch is down, or the baseboard lost power",
        )  # fmt: skip
        report.say, report.drain = report.findings[-1].say, GANG


def _dicts(value: Any) -> list[dict[str, Any]]:
    inner = value.values() if isinstance(value, dict) else ()
    return [one for one in inner if isinstance(one, dict)]


def _drain(findings: list[Finding]) -> str:
    if any(f.rule == NO_LINK.id for f in findings):
        return GANG
    return AFTER_JOBS if findings else NO
