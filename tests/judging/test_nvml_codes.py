"""Every return code of NVML is a sentence, and none is shown as a bare number."""

from __future__ import annotations

import pynvml
import pytest

from inventory.errors import UsageError
from probes.checks import RULES
from probes.checks.explain import explain
from probes.checks.nvml_codes import NVML_CODES, code
from probes.event import Action, Severity
from probes.rules import load_rules

DOCUMENTED = sorted(
    value for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(value, int)
)  # fmt: skip


def page(topic: str) -> str:
    return " ".join(explain(topic, RULES, load_rules()).split())


def test_every_code_of_the_binding_has_its_sentence() -> None:
    assert sorted(NVML_CODES) == [0, *DOCUMENTED]
    assert DOCUMENTED[0] == 1
    assert DOCUMENTED[-1] == 999


@pytest.mark.parametrize("number", [0, *DOCUMENTED])
def test_explain_says_what_and_what_to_do(number: int) -> None:
    known = NVML_CODES[number]
    said = page(f"nvml:{number}")
    assert said.startswith(f"NVML return {number} {known.severity} {known.name}")
    assert known.say in said
    assert ("action" in said) == (known.action is not Action.NONE)


@pytest.mark.parametrize("number", [31, 77, 998, 4294967295])
def test_an_undocumented_code_is_explained_too(number: int) -> None:
    assert code(number).severity is Severity.WARN
    assert f"no return code {number}" in page(f"nvml:{number}")


@pytest.mark.parametrize("topic", ["nvml:-1", "nvml:12345678901", "nvml:lost"])
def test_what_is_no_code_is_the_operators_error(topic: str) -> None:
    with pytest.raises(UsageError, match="no nvml is called"):
        explain(topic, RULES, load_rules())


def test_faults_ask_for_something_and_others_do_not() -> None:
    for number, known in NVML_CODES.items():
        assert (known.severity is Severity.OK) == (known.action is Action.NONE), number
