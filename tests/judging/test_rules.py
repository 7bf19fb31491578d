"""Rule data: complete, each entry with a source; the site's overlay: strict, with provenance."""

from __future__ import annotations

import ast
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inventory.errors import UsageError
from probes.checks import RULES
from probes.event import Action, Severity
from probes.rules import Rules, load_rules
from probes.sources import cited

ROOT = Path(__file__).parents[2]

PRODUCTS = [
    "V100-SXM2-32",
    "V100-PCIE-16",
    "A100-SXM4-40",
    "A100-SXM4-80",
    "A100-PCIE-40",
    "A100-PCIE-80",
    "A800-SXM4-80",
    "H100-SXM5-80",
    "H100-PCIE-80",
    "H100-NVL-94",
    "H800-SXM5-80",
    "H20-SXM-96",
    "H200-SXM-141",
    "H200-NVL-141",
    "B200-SXM-180",
    "B300-SXM-288",
    "GB200-NVL72",
    "GB300-NVL72",
    "L40S",
    "A10",
    "RTX6000-Ada",
]
"""Data-centre products from V100 to GB300."""
TABLED_XIDS = {
    13, 31, 32, 69, 25, 11, 37, 38, *range(39, 42), *range(70, 73), *range(75, 78), 85,
    *range(126, 136), 43, 44, 45, 46, 109, 48, 54, 61, 62, 63, 64, 66, 67, 68, 82, 83, 84, 86, 88,
    89, *range(96, 106), 74, 78, 79, 92, 93, 94, 95, 110, 119, 120, 121, 136, 137, 140, 141, 143,
    *range(144, 152), *range(154, 166), 167, 168, 169, 171, 172, 173, 175, 176,
}  # fmt: skip
"""Xids of NVIDIA's catalogue and of the driver header."""
TABLED_SXIDS = {
    20034, 12028, 11001, 11004, 11009, 11012, 24001, 24002, 24003, 11013, 11018, 19047, 19070,
    14017, 24007, 19084, 20001, 20009, 22003, 22011, 22012, 22013, 23001, 23017, 10001, 10002,
    10003, 10004, 10005,
}  # fmt: skip
PROMISED = [
    "ib.symbol_error_per_s",
    "ib.link_downed",
    "ib.link_error_recovery_per_min",
    "ib.port_rcv_errors_per_s",
    "ib.port_xmit_discards_per_s",
    "ib.local_ack_timeout_per_s",
    "ib.roce_slow_restart_per_s",
    "nvlink.crc_per_s",
    "nvlink.error_increment",
    "straggler.z_warn",
    "nvlink.speed_below_siblings",
    "thermal.hw_share_warn",
    "thermal.hw_share_critical",
    "thermal.margin_c",
    "ecc.uncorrected_volatile",
    "remap.rows_total",
    "pcie.busy_util_percent",
    "xid.burst_gap_s",
    "xid.bursts_suspect",
    "host.wall_skew_s",
    "stale.intervals",
    "nccl.floor_share",
    "straggler.r75_warn",
]


@pytest.fixture(scope="module")
def rules() -> Rules:
    return load_rules()


def overlaid(tmp_path: Path, text: str) -> Rules:
    path = tmp_path / "site.yaml"
    path.write_text(text, encoding="utf-8")
    return load_rules(path)


def refused(tmp_path: Path, text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        overlaid(tmp_path, text)
    return caught.value


def test_every_entry_has_a_source_that_names_somebody(rules: Rules) -> None:
    sources = {name: limit.source for name, limit in rules.limits.items()}
    sources |= {name: product.source for name, product in rules.products.items()}
    sources |= {f"xid {code}": meaning.source for code, meaning in rules.xids.items()}
    sources |= {f"sxid {code}": meaning.source for code, meaning in rules.sxids.items()}
    ours = ("our estimate", "our simulation", "public nvidia-smi", "vendor sheet, not read")
    plain = ("step of the temperature sensor", "clocks move in steps", "only the tools named above")
    unsourced = {
        name: source
        for name, source in sources.items()
        if not cited(source) and not any(words in source for words in ours + plain)
    }
    assert unsourced == {}
    for name, source in sources.items():
        if "only the tools named above" in source:
            code = int(name.removeprefix("xid "))
            assert cited(rules.xids[code].others), name


def test_every_limit_says_what_it_compares_and_in_which_unit(rules: Rules) -> None:
    assert [name for name, limit in rules.limits.items() if not limit.help or not limit.unit] == []
    assert [name for name, limit in rules.limits.items() if limit.name != name] == []


def test_every_limit_is_named_by_a_rule_or_read_by_code(rules: Rules) -> None:
    used = {name for rule in RULES for name in rule.limits}
    for path in [*(ROOT / "probes").rglob("*.py"), *(ROOT / "console").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="limit"), args=[ast.Constant(value=str(name))]
                ):
                    used.add(name)
                case ast.Subscript(slice=ast.Constant(value=str(name))):
                    used.add(name)
    assert rules.limits.keys() - used == set()


@pytest.mark.parametrize("name", PROMISED)
def test_limit_is_there(rules: Rules, name: str) -> None:
    assert rules.limit(name).name == name


def test_every_product_of_the_hardware_table(rules: Rules) -> None:
    assert set(PRODUCTS) - rules.products.keys() == set()
    assert len(rules.products) >= 30


def test_every_xid_of_the_table(rules: Rules) -> None:
    assert TABLED_XIDS - rules.xids.keys() == set()
    assert TABLED_SXIDS - rules.sxids.keys() == set()
    assert all(meaning.code == code for code, meaning in rules.xids.items())


def test_jobs_own_faults_never_accuse_the_node(rules: Rules) -> None:
    for code in (13, 31, 43):
        meaning = rules.xids[code]
        assert (meaning.kind, meaning.severity, meaning.hard) == ("app", Severity.INFO, False)
    assert rules.xids[43].action is Action.NONE


def test_what_is_critical_latches_and_asks_for_something(rules: Rules) -> None:
    critical = [
        m
        for table in (rules.xids, rules.sxids)
        for m in table.values()
        if m.severity is Severity.CRITICAL
    ]
    assert critical
    assert all(m.hard and m.action.rank >= Action.RESET_GPU.rank for m in critical)


def test_product_by_pci_id_then_by_name(rules: Rules) -> None:
    by_id, by_name = rules.product("2330"), rules.product("ffff", "NVIDIA H200")
    assert by_id is not None
    assert by_name is not None
    assert (by_id.name, by_id.nvlink_links, by_id.nvlink_mbps) == ("H100-SXM5-80", 18, 26562)
    assert by_name.name == "H200-SXM-141"
    assert rules.product("0x20B2") is rules.products["A100-SXM4-80"]
    assert rules.product("ffff") is None
    assert rules.product(None) is None


def test_pci_ids_and_names_are_unambiguous(rules: Rules) -> None:
    ids = [i for product in rules.products.values() for i in product.pci_ids]
    names = [n for product in rules.products.values() for n in product.nvml_names]
    assert len(ids) == len(set(ids))
    assert len(names) == len(set(names))


def test_cards_whose_links_need_a_bridge_are_marked(rules: Rules) -> None:
    bridged = {n for n, p in rules.products.items() if p.nvlink_bridge}
    linked_cards = {n for n, p in rules.products.items() if p.form == "pcie" and p.nvlink_links}
    single = {"GH200-96"}  # a superchip that may stand alone
    assert bridged == linked_cards | single


def test_packaged_rules_are_read_once() -> None:
    assert load_rules() is load_rules()


def test_overlay_wins_and_says_where_it_is(tmp_path: Path) -> None:
    rules = overlaid(
        tmp_path,
        "thresholds:\n"
        "  ib.symbol_error_per_s: 25\n"
        "  remap.rows_total: {value: 100, source: our vendor}\n"
        "hardware:\n  A100-SXM4-80: {tdp_w: 500}\n"
        "xid:\n  63: {severity: warn}\n",
    )
    before = load_rules()
    limit = rules.limit("ib.symbol_error_per_s")
    assert (limit.value, limit.unit) == (25, before.limit(limit.name).unit)
    assert f"{tmp_path / 'site.yaml'}:2" in limit.source
    assert "packaged 10" in limit.source
    assert "our vendor" in rules.limit("remap.rows_total").source
    assert rules.products["A100-SXM4-80"].tdp_w == 500
    assert rules.products["A100-SXM4-80"].mem_gb == before.products["A100-SXM4-80"].mem_gb
    assert rules.xids[63].severity is Severity.WARN
    assert before.xids[63].severity is Severity.INFO
    assert rules.overlay == str(tmp_path / "site.yaml")


def test_overlay_may_add_a_product_and_a_code(tmp_path: Path) -> None:
    rules = overlaid(
        tmp_path,
        "hardware:\n"
        "  X900: {pci_ids: ['ABCD'], form: sxm, mem_gb: 10, mem_bw_gb_s: 1, tdp_w: 9,"
        " verified: false, source: sheet}\n"
        "sxid:\n"
        "  '30001-30002': {name: a, kind: fabric, severity: warn, action: watch, cause: c,"
        " next_step: n, hard: true}\n",
    )
    found = rules.product("abcd")
    assert found is not None
    assert found.name == "X900"
    assert rules.sxids[30002].source.startswith(str(tmp_path / "site.yaml"))


def test_empty_overlay_changes_nothing(tmp_path: Path) -> None:
    assert overlaid(tmp_path, "").limits == load_rules().limits


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("treshold:\n  a: 1\n", 1, "did you mean thresholds?"),
        ("thresholds:\n\n  ib.symbol_eror_per_s: 3\n", 3, "did you mean ib.symbol_error_per_s?"),
        ("thresholds:\n  ib.link_downed:\n    valeu: 3\n", 3, "did you mean value?"),
        ("thresholds:\n  ib.link_downed: many\n", 2, "a number"),
        ("thresholds:\n  ib.link_downed: .nan\n", 2, "a number"),
        ("thresholds:\n  straggler.r_warn: 95\n", 2, "a fraction from 0 to 1"),
        ("thresholds:\n  ib.link_downed: {value: 3, unit: /h}\n", 2, "convert it"),
        ("hardware:\n  H100-SXM5-8: {tdp_w: 650}\n", 2, "did you mean H100-SXM5-80?"),
        ("hardware:\n  L40S:\n    tdpw: 3\n", 3, "did you mean tdp_w?"),
        ("hardware:\n  L40S:\n    form: smx\n", 3, "did you mean sxm?"),
        ("hardware:\n  L40S:\n    pci_ids: [2330x]\n", 3, "four hex digits"),
        ("hardware:\n  L40S: {pci_ids: ['2330']}\n", 2, "H100-SXM5-80"),
        ("xid:\n  79:\n    severity: crit\n", 3, "did you mean critical?"),
        ("xid:\n  79:\n    action: drian\n", 3, "did you mean drain?"),
        ("xid:\n  79a: {hard: true}\n", 2, "not a code"),
        ("xid:\n  999: {hard: true}\n", 2, "lacks action, cause"),
        ("xid:\n  79: {hard: true}\n  '78-80': {hard: true}\n", 3, "79 again"),
        ("xid:\n  79: {hard: true}\n  79: {hard: false}\n", 3, "again"),
        ("xid:\n  '80-79': {hard: true}\n", 2, "low to high"),
        ("- 1\n", 1, "must be a mapping"),
        ("thresholds: [a]\n", 1, "must be a mapping"),
        ("thresholds: {a: [}\n", 1, ""),
    ],
)
def test_what_the_rules_do_not_know_is_refused_with_place(
    tmp_path: Path, text: str, line: int, says: str
) -> None:
    error = refused(tmp_path, text)
    assert error.where == f"{tmp_path / 'site.yaml'}:{line}"
    assert says in str(error)


PIECES = (
    "thresholds", "hardware", "xid", "L40S", "79", "ib.link_downed", "value", "hard", "~", ":",
    ": ", "\n", "\n  ", "\n    ", "[", "]", "{", "}", "- ", "&a", "*a", "'", "!!x ", "1e999", "-",
    ",", "\t", "#", "|", "\x00", "é", "<<", "? ", "thresholds:\n  ", "xid:\n  79: ", "hardware: ",
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_any_text_is_rules_or_the_operators_error(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "site.yaml"
        path.write_text(text, encoding="utf-8")
        where = said = str(path)
        try:
            said = load_rules(path).overlay
        except UsageError as error:
            where = error.where
    assert where.startswith(said)


@pytest.mark.parametrize("section", ["thresholds", "hardware", "xid", "sxid"])
@pytest.mark.parametrize("inner", ["{value: x}", "{tdp_w: 1}", "{no: 1}", "x", "3"])
def test_messages_carry_no_control_characters(tmp_path: Path, section: str, inner: str) -> None:
    error = refused(tmp_path, f'{section}:\n  "\\e[31m\\a": {inner}\n')
    assert str(error).isprintable()


def test_missing_overlay_is_the_operators_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.yaml"):
        load_rules(tmp_path / "absent.yaml")


def test_several_problems_name_all_lines(tmp_path: Path) -> None:
    error = refused(tmp_path, "thresholds:\n  a.b: 1\n  c.d: 2\nzzz: {}\n")
    assert error.where.endswith(":2")
    assert "line 3, 4" in str(error)


def test_a_refused_overlay_leaves_the_packaged_rules_alone(tmp_path: Path) -> None:
    refused(tmp_path, "thresholds:\n  ib.link_downed: 7\n  nothing.known: 1\n")
    assert load_rules().limit("ib.link_downed").value == 0
