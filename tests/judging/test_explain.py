"""`explain` answers from the rules' own data, in lines of 100 columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from inventory.errors import UsageError
from probes.checks import RULES, nvml_codes
from probes.checks.explain import WIDTH, explain
from probes.checks.rule import Rule
from probes.rules import load_rules

PACKAGED = load_rules()


def text(topic: str) -> str:
    return explain(topic, RULES, PACKAGED)


def test_no_topic_lists_every_rule_once() -> None:
    lines = text("").splitlines()
    listed = [line.split()[0] for line in lines if line and line[0] != " "]
    for rule in RULES:
        assert listed.count(rule.id) == 1
        assert any(line.split()[:2] == [rule.id, str(rule.severity)] for line in lines if line)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_rule_says_all_it_knows(rule: Rule) -> None:
    said = " ".join(text(rule.id).split())
    for part in (rule.title, rule.reads, rule.cause, rule.next_step, rule.example, rule.source):
        assert " ".join(part.split()) in said
    for name in rule.limits:
        limit = PACKAGED.limit(name)
        assert f"{name} = {limit.value:g} {limit.unit}" in said
        assert " ".join(limit.source.split()) in said


def test_glob_gives_several_rules() -> None:
    said = text("ib.*")
    for rule in RULES:
        assert (rule.title in said) == rule.id.startswith("ib.")


@pytest.mark.parametrize("topic", ["xid:79", "xid.79", "XID:79"])
def test_xid(topic: str) -> None:
    said = text(topic)
    assert "fallen off the bus" in said
    assert "drain" in said
    assert "EKS fatal" in said
    assert "science.md 3" in said


def test_sxid_and_nvml_and_hardware_and_limit() -> None:
    assert "LTSSM" in text("sxid:20034")
    assert "LTSSM" in text("sxid.20034")
    assert "lost" in text("nvml:15")
    assert "18 NVLinks" in text("hardware:H100-SXM5-80")
    assert text("hardware:l40s") == text("hardware:L40S")
    assert text("limit:remap.rows_total") == text("remap.rows_total")


def test_every_code_and_product_has_a_page() -> None:
    topics = [f"xid:{code}" for code in PACKAGED.xids]
    topics += [f"sxid:{code}" for code in PACKAGED.sxids]
    topics += [f"nvml:{code}" for code in nvml_codes.NVML_CODES]
    topics += [f"hardware:{name}" for name in PACKAGED.products]
    topics += [f"limit:{name}" for name in PACKAGED.limits]
    for topic in ["", "*", "xid:", "sxid:", "nvml:", "hardware:", "limit:", *topics]:
        lines = text(topic).splitlines()
        assert lines
        assert max(map(len, lines)) <= WIDTH


def test_kind_without_name_lists_all() -> None:
    said = text("xid:")
    assert len(said.splitlines()) >= len(PACKAGED.xids)
    assert all(f"hardware:{name} " in text("hardware:") for name in PACKAGED.products)


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("gpu.lst", "did you mean gpu.lost?"),
        ("ib.symbol_eror_per_s", "did you mean ib.symbol_error_per_s?"),
        ("hardware:H100-SXM-80", "did you mean H100-SXM5-80?"),
        ("xid:7999", "`gpuconsole explain xid:` lists all"),
        ("zzz", "`gpuconsole explain` lists all rules"),
        ("zzz.*", "lists all rules"),
        ("nvml:lost", "lists all"),
    ],
)
def test_unknown_topic_is_the_operators_error(topic: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        text(topic)
    assert says in str(caught.value)


def test_hostile_topic_reaches_no_terminal_unquoted() -> None:
    with pytest.raises(UsageError) as caught:
        text("\x1b[31m" * 1000)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_sites_own_limit_is_shown_with_its_file(tmp_path: Path) -> None:
    overlay = tmp_path / "site.yaml"
    overlay.write_text("thresholds:\n  remap.rows_total: 77\n", encoding="utf-8")
    said = "".join(explain("remap.rows_total", RULES, load_rules(overlay)).split())
    assert "remap.rows_total77" in said
    assert f"{overlay}:2" in said
