"""Host expressions: what they mean, what is refused and where, and that folding loses nothing."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inventory.errors import UsageError
from inventory.expressions import MAX_HOSTS, expand, fold, is_host_name, natural_key

CASES = Path(__file__).parent.parent / "data" / "cases"

MIXED = [
    ["gpu001", "gpu002", "gpu003", "gpu004", "gpu010", "login1"],
    ["nodeA", "nodeB001", "nodeB003", "nodeC"],
    ["gpu-a9", "gpu-a10", "gpu-a11"],
    ["gpu-a09", "gpu-a10", "gpu-a11"],
    ["n1-ib", "n2-ib", "n3-ib", "n7-ib"],
]
REFUSED = [
    ("unclosed bracket", 5),
    ("unexpected ]", 7),
    ("nested bracket", 6),
    ("empty bracket", 5),
    ("empty item", 9),
    ("empty item", 6),
    ("descending range", 6),
    ("not a number", 6),
    ("open range", 6),
    ("bad range", 6),
    ("empty name", 1),
    ("too many hosts", 1),
]


def lines(case: str) -> list[str]:
    """The input of a field case, one expression a line."""
    return (CASES / f"{case}.txt").read_text().splitlines()


@pytest.mark.parametrize(
    ("expression", "hosts"), list(zip(lines("inventory-mixed-hostlist"), MIXED, strict=True))
)
def test_mixed_hostlist(expression: str, hosts: list[str]) -> None:
    assert expand(expression) == hosts


@pytest.mark.parametrize(
    ("expression", "why"),
    list(zip(lines("inventory-malformed-must-be-rejected"), REFUSED, strict=True)),
)
def test_malformed_hostlist(expression: str, why: tuple[str, int]) -> None:
    with pytest.raises(UsageError) as caught:
        expand(expression, where="hosts.yaml:7")
    message = str(caught.value)
    assert message.startswith("hosts.yaml:7: ")
    assert why[0] in message
    assert f"at column {why[1]};" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("expression", "hosts"),
    [
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("n[0-6/3]", ["n0", "n3", "n6"]),
        ("n[1-4]!n2", ["n1", "n3", "n4"]),
        ("n[1-4]!n[2-3],n3", ["n1", "n4", "n3"]),
        (" b  a , c\tb ", ["b", "a", "c"]),
        ("n[0-10]", [f"n{i}" for i in range(11)]),
        ("n[3,1,3]", ["n1", "n3"]),
        ("n1[2-3]", ["n12", "n13"]),
        ("10.0.0.[1-2]", ["10.0.0.1", "10.0.0.2"]),
        ("n1,n01,n001", ["n1", "n01", "n001"]),
        ("gpu1.example.org", ["gpu1.example.org"]),
    ],
)
def test_expand(expression: str, hosts: list[str]) -> None:
    assert expand(expression) == hosts


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "empty host expression at column 1"),
        ("  ", "empty host expression at column 1"),
        ("a,,b", "empty name at column 3"),
        ("a,", "empty name at column 3"),
        ("a!!b", "empty name at column 3"),
        ("a,-oProxyCommand=x", "cannot begin with '-' at column 3"),
        ("root@gpu1", "login name goes into `user:`) at column 5"),
        ("@rack1", "node groups of ClusterShell are not read here"),
        ("gpu*", "wildcards are not host names) at column 4"),
        ("gpu1:22", "goes into `port:` or `address:`) at column 5"),
        ("a[1]&a[1]", 'only "," and "!" combine hosts) at column 5'),
        ("gpü1", "'ü' cannot be in a host name at column 3"),
        ("a;reboot", "';' cannot be in a host name at column 2"),
        ("a$(x)", "'$' cannot be in a host name at column 2"),
        ("a\x1b[1]", "'\\x1b' cannot be in a host name at column 2"),
        ("n[1, 2]", "' 2' is not a number or a range of numbers at column 5"),
        ("n[01-100]", "range 01-100 is padded at one end only at column 3"),
        ("n[1-010]", "padded at one end only at column 3"),
        ("n[1-9/0]", "step 0 in range 1-9/0 at column 3"),
        ("n[1-2][3-4]", "two brackets without a character between at column 7"),
        ("n[1-99999]x[1-99999]", "too many hosts"),
        ("n[1-9999999999999999999]", "number of more than 18 digits at column 3"),
        ("n[١-٢]", "is not a number"),
        ("x" * 300, "name longer than 253 characters"),
    ],
)
def test_refused(expression: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        expand(expression)
    assert why in str(caught.value)


def test_cap_is_on_the_sum_and_inclusive() -> None:
    half = MAX_HOSTS // 2
    assert len(expand(f"a[1-{half}],b[1-{half}]")) == MAX_HOSTS
    with pytest.raises(UsageError, match="too many hosts"):
        expand(f"a[1-{half}],b[1-{half}],c")


def test_natural_order() -> None:
    names = ["gpu10", "gpu2", "login", "gpu2-ib", "a", "gpu02", "r1n10", "r1n9", "r10n1"]
    assert sorted(names, key=natural_key) == [
        "a", "gpu02", "gpu2", "gpu2-ib", "gpu10", "login", "r1n9", "r1n10", "r10n1",
    ]  # fmt: skip


def test_fold_for_slurm_has_ranges_at_the_end_only() -> None:
    names = ["r1n1", "r1n2", "r2n1", "n1-ib", "n2-ib", "n09", "n10", "n8"]
    assert fold(names, last_number_only=True) == "n[8,09-10],r1n[1-2],r2n1,n1-ib,n2-ib"
    assert fold([]) == fold([], last_number_only=True) == ""


name = st.from_regex(r"[a-z][a-z0-9.-]{0,6}[a-z0-9]", fullmatch=True)
many = st.lists(name, max_size=30)
numbered = st.builds(
    lambda prefix, numbers, suffix: [f"{prefix}{n:0{w}}{suffix}" for n, w in numbers],
    st.sampled_from(["n", "gpu-a", "r1n", "10.0.0.", "x"]),
    st.lists(st.tuples(st.integers(0, 120), st.integers(1, 3)), max_size=30),
    st.sampled_from(["", "-ib", ".example", "b2"]),
)


@settings(deadline=None)
@given(st.one_of(many, st.lists(numbered, max_size=3).map(lambda x: list(itertools.chain(*x)))))
def test_fold_and_expand_round_trip(names: list[str]) -> None:
    for last_only in (False, True):
        folded = fold(names, last_number_only=last_only)
        assert (set(expand(folded)) if folded else set()) == set(names)
        if last_only:
            assert all(not part.strip("0123456789,-") for part in _after_brackets(folded))


def _after_brackets(folded: str) -> list[str]:
    """What follows each closing bracket up to the end of its item."""
    return [rest.split(",", 1)[0] for rest in folded.split("]")[1:]]


span = st.tuples(st.integers(0, 300), st.integers(0, 20), st.integers(1, 4))


@settings(deadline=None)
@given(st.lists(span, min_size=1, max_size=3), st.sampled_from(["n", "gpu0", "a-b"]))
def test_expand_agrees_with_arithmetic(spans: list[tuple[int, int, int]], prefix: str) -> None:
    axes, text = [], prefix
    for i, (low, more, width) in enumerate(spans):
        width = max(width, len(str(low + more)))
        text += f"{'-x' if i else ''}[{low:0{width}}-{low + more:0{width}}]"
        axes.append([f"{n:0{width}}" for n in range(low, low + more + 1)])
    expected = [prefix + "-x".join(parts) for parts in itertools.product(*axes)]
    assert expand(text) == expected


def outcome(text: str) -> tuple[list[str], str]:
    """Hosts, or the message of the refusal."""
    try:
        return expand(text), ""
    except UsageError as error:
        return [], str(error)


@settings(deadline=None)
@given(st.one_of(st.text(max_size=40), st.text(alphabet="n1[]-,!/ 0", max_size=20)))
def test_any_text_is_expanded_to_host_names_or_refused_in_one_line(text: str) -> None:
    hosts, refusal = outcome(text)
    assert all(is_host_name(host) for host in hosts)
    if refusal:
        assert "at column" in refusal
        assert refusal.isprintable()
    else:
        assert hosts or "!" in text


@settings(deadline=None)
@given(st.lists(st.text(max_size=20), max_size=20))
def test_fold_takes_any_text(names: list[str]) -> None:
    fold(names)
    sorted(names, key=natural_key)
