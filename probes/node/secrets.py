"""What looks like a secret is struck from a text before it leaves the node. Pure."""

import re

NAMES = (
    r"(?:pass(?:word|wd|phrase|code)|secret|token|credentials?|docker_?config(?:json)?"
    r"|(?:api|access|account|private|shared|encryption)[_-]?key)[\w.-]{0,40}"
)
"""Of settings that hold a secret. A bare "pass" is no name: pass-through, passive, passed."""

VALUE = (
    r"(?!\[struck\])(?:\\{1,8}([\"'])[^\n]*?(?:\\\2|$)|\"(?:[^\"\\\n]|\\.)*\"?|'[^'\n]*'?"
    r"|[^\s\"'][^\s]*)"
)
"""A quoted text to its closing quote, or up to the next space: passwords have commas too."""

SECRETS = (
    (re.compile(r"(audit[^\n]{0,120}?\b(?:argc=\d+ |proctitle=|cmd=|data=))[^\n]*"), r"\1[struck]"),
    (
        re.compile(r"(?i)((?:authorization|cookie)[\"'\\]{0,4}[ \t]{0,20}[=:][ \t]{0,20})[^\n]*"),
        r"\1[struck]",
    ),
    (
        re.compile(
            r"(?im)("
            + NAMES
            + r"[\"'\\\]]{0,4}[ \t]{0,20}(?:[=:]+>?|%3[ad]|[ \t])[ \t]{0,20})"
            + VALUE
        ),
        r"\1[struck]",
    ),
    (
        re.compile(
            r"(?im)((?:\bpass|pwd|psk|[?&](?:sig|signature|x-amz-[a-z-]+)|[\"']_?auth)"
            r"[\"'\\]{0,4}[ \t]{0,20}[=:][ \t]{0,20})" + VALUE
        ),
        r"\1[struck]",
    ),
    (
        re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,20}://[^\s:/@]*:)[^\s\"'<>]{0,500}@"),
        r"\1[struck]@",
    ),
    (re.compile(r"(?i)\b(netroot=iscsi:)[^\s@]{1,300}@"), r"\1[struck]@"),
    (re.compile(r"(?i)\b(bearer[ \t]{1,20})(?!\[struck\])[^\s\"',;]{8,}"), r"\1[struck]"),
    (re.compile(r"\$(?:1|2[abxy]?|5|6|7|y|gy)\$[^\s:\"',]{8,}"), "[struck]"),
    (
        re.compile(
            r"\b(?:A[KS]IA[0-9A-Z]{16}|gh[pousr]_\w{30,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
            r"|hf_\w{20,}|nvapi-[\w-]{20,}|sk-[\w-]{20,}|xox[a-z]-[\w-]{10,}|AIza[\w-]{30,}"
            r"|ya29\.[\w-]{20,}|npm_\w{30,}|dckr_pat_[\w-]{20,}|hvs\.[\w-]{20,}"
            r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*|eyJ[\w+/-]{30,}=*)"
        ),
        "[struck]",
    ),
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----"
            r"(?:.{0,20000}?-----END [A-Z ]*-----|.{0,20000})",
            re.S,
        ),
        "[struck]",
    ),
    (
        re.compile(
            r"\A(?:(?!-----BEGIN ).){0,20000}?-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----", re.S
        ),
        "[struck]",
    ),
)
"""What looks like a secret -> what is left of it.

Settings by their names, passwords in addresses, password hashes, private keys (also the rest of one
whose beginning was cut off), JSON web tokens and the public forms of AWS, Docker, GitHub, GitLab,
Google, Hugging Face, npm, NVIDIA, OpenAI, Slack and Vault tokens. The kernel's audit lines tell
command lines and what was typed: both go. Every repeat is bounded, as anybody may write some lines.
"""


def struck(data: "bytes") -> "bytes":
    """The same text with what looks like a secret replaced."""
    text = data.decode("utf-8", "replace")
    for pattern, left in SECRETS:
        text = pattern.sub(left, text)
    return text.encode("utf-8")
