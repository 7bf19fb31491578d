"""`explain` answers from the rules' own data, in lines of 100 columns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from console.active.results import Level
from console.diagnose.detect import paper_rules
from console.memory import lemon
from console.topics import pages
from inventory.errors import UsageError
from probes.checks import RULES, nvml_codes
from probes.checks.explain import WIDTH, explain
from probes.checks.rule import Rule
from probes.rules import load_rules
from probes.sources import cited, sources

NOT_TAGS = {"[error]"}
"""Words in brackets that a kernel line of an example prints."""
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


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_what_to_do_stands_before_the_limits(rule: Rule) -> None:
    labels = [line[2:14].strip() for line in text(rule.id).split("\n\n")[0].splitlines()[1:]]
    told = [label for label in labels if label]
    wanted = ("reads", "cause", "action", "next step", "example")
    first = [label for label in wanted if label in told]
    assert told[: len(first)] == first
    assert "next step" in first
    assert not rule.limits or told[-1] == "limit"


def test_topics_of_no_rule_have_a_page_and_a_near_name() -> None:
    def say(topic: str) -> str:
        return explain(topic, RULES, PACKAGED, pages())

    lemons = " ".join(say("Lemon").split())
    assert f"{lemon.HARD_NOW} for hard critical" in lemons
    assert f"{lemon.TEST_FAILED} for each test not passed" in lemons
    assert lemon.SOURCE in lemons
    for level in Level:
        assert re.search(rf"^  {level.value} ", say("test"), re.MULTILINE)
    assert max(map(len, [*say("test").splitlines(), *say("lemon").splitlines()])) <= WIDTH
    assert "and lemon, test" in say("")
    with pytest.raises(UsageError, match=r"did you mean lemon\?"):
        say("lemn")


def test_glob_gives_several_rules() -> None:
    said = text("ib.*")
    for rule in RULES:
        assert (rule.title in said) == rule.id.startswith("ib.")


def test_a_domain_lists_its_rules() -> None:
    """`explain gpu` is no typing error for gpu.mig."""
    listed = [line.split()[0] for line in text("GPU").splitlines()[:-2]]
    assert listed == [rule.id for rule in RULES if rule.id.startswith("gpu.")]


@pytest.mark.parametrize("topic", ["xid:79", "xid.79", "XID:79"])
def test_xid(topic: str) -> None:
    said = text(topic)
    assert "fallen off the bus" in said
    assert "drain" in said
    assert "EKS fatal" in said
    assert "source      NVIDIA Xid catalogue [xid]" in said
    assert "[xid]  = NVIDIA Xid catalogue (docs.nvidia.com" in said
    assert "EKS    = aws/eks-node-monitoring-agent" in said
    assert "[dcgm]" not in said


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


def test_sources_lists_every_tag_and_tool_with_what_was_read() -> None:
    said = " ".join(text("sources").split())
    assert "[nvsent] NVIDIA NVSentinel; read: documents and designs of a fork, July 2026" in said
    for source in sources():
        assert f"{source.name} {source.title}; read: {source.read}" in said


def test_legend_explains_every_tag_of_every_page() -> None:
    topics = [rule.id for rule in RULES] + [f"hardware:{name}" for name in PACKAGED.products]
    topics += [f"xid:{code}" for code in PACKAGED.xids] + [f"limit:{n}" for n in PACKAGED.limits]
    for topic in [*topics, *(f"sxid:{code}" for code in PACKAGED.sxids), "nvml:15", "ib.*"]:
        body, _, legend = text(topic).rpartition("\n\n")
        named = [line.split()[0].strip("[]") for line in legend.splitlines() if " = " in line]
        explained = {f"[{name}]" for name in named}
        assert set(re.findall(r"\[[a-z]{2,6}\]", body)) - NOT_TAGS <= explained, topic


def test_every_source_is_cited_somewhere() -> None:
    said = [f"{rule.source} {rule.others}" for rule in (*RULES, *paper_rules())]
    said += [limit.source for limit in PACKAGED.limits.values()]
    said += [product.source for product in PACKAGED.products.values()]
    for table in (PACKAGED.xids, PACKAGED.sxids):
        said += [f"{meaning.source} {meaning.others}" for meaning in table.values()]
    used = {source.name for entry in said for source in cited(entry)}
    assert [source.name for source in sources() if source.name not in used] == []


def test_a_tools_name_is_a_whole_word() -> None:
    assert cited("NVSentinel, PRIV, myGCM and dcgm without brackets") == []
    assert [source.name for source in cited("[gpud], NVS and (SCK)")] == ["gpud", "NVS", "SCK"]


def test_sites_own_limit_is_shown_with_its_file(tmp_path: Path) -> None:
    overlay = tmp_path / "site.yaml"
    overlay.write_text("thresholds:\n  remap.rows_total: 77\n", encoding="utf-8")
    said = "".join(explain("remap.rows_total", RULES, load_rules(overlay)).split())
    assert "remap.rows_total77" in said
    assert f"{overlay}:2" in said
