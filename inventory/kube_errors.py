"""What kubectl says when it fails, as one sentence and a next step.

Texts as printed by kubectl 1.33 and 1.37 (`Error from server (REASON): ...` carries the API's own
reason).
"""

from __future__ import annotations

import re

from inventory.errors import SchedulerError
from inventory.run import Completed
from inventory.slurm_text import clean

WORDS_CHARS = 200

_REASON = re.compile(r"Error from server \((\w+)\)")
_KNOWN = (
    # what it prints, the sentence, the next step
    ("localhost:8080 was refused", "kubectl has no cluster", "set KUBECONFIG, or choose a context"),
    ("Missing or incomplete configuration", "kubectl has no cluster", "set KUBECONFIG"),
    ("current-context is not set", "kubectl has no current context", "name one: -i k8s:CONTEXT"),
    ("context was not found", "kubectl has no such context", "see: kubectl config get-contexts"),
    ("does not exist", "kubectl has no such context", "see: kubectl config get-contexts"),
    ("getting credentials", "kubectl cannot get credentials", "log in as for kubectl itself"),
    ("You must be logged in", "the API server refused our credentials", "log in again"),
    ("x509", "the API server's certificate is not trusted", "check the kubeconfig's CA"),
    ("was refused", "the API server does not answer", "check: kubectl cluster-info"),
    ("Unable to connect", "the API server does not answer", "check: kubectl cluster-info"),
    ("i/o timeout", "the API server does not answer in time", "check: kubectl cluster-info"),
)
_REASONS = {
    "Forbidden": ("not permitted", "see: kubectl auth can-i patch nodes, and list pods"),
    "NotFound": ("not known to Kubernetes", "check: kubectl get nodes"),
    "Conflict": ("somebody changed the node at the same moment", "look again"),
    "Unauthorized": ("the API server refused our credentials", "log in again"),
    "TooManyRequests": ("the API server is overloaded", "try again later"),
    "ServiceUnavailable": ("the API server is not available", "check: kubectl cluster-info"),
    "Timeout": ("the API server does not answer in time", "check: kubectl cluster-info"),
    "InternalError": ("the API server failed", "see its log"),
}  # fmt: skip


class KubeError(SchedulerError):
    """A kubectl command failed."""

    def __init__(self, what: str, hint: str = "", *, reason: str = "") -> None:
        """`reason` is the API's own word (Forbidden, NotFound, Conflict, ...) if it gave one."""
        super().__init__(what, hint)
        self.reason = reason

    @property
    def about_all(self) -> bool:
        """Whether another node would fare no better."""
        return self.reason not in ("NotFound", "Conflict", "TooManyRequests", "InternalError")


def command_failed(done: Completed) -> KubeError:
    """The error for a command that failed (rc not 0). Its own words stay in it."""
    if done.missing:
        return KubeError("kubectl is not installed here", "install it, or run this where it is")
    if done.timed_out:
        return KubeError(f"kubectl: {done.stderr}", "check: kubectl cluster-info")
    said = [clean(line) for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    words = said[-1][:WORDS_CHARS] if said else f"exit status {done.rc} without a word"
    for line in said:
        reason = _REASON.search(line)
        if reason and reason[1] in _REASONS:
            sentence, hint = _REASONS[reason[1]]
            return KubeError(f"{sentence} ({line[:WORDS_CHARS]})", hint, reason=reason[1])
        known = next((k for k in _KNOWN if k[0] in line), None)
        if known:
            return KubeError(f"{known[1]} ({line[:WORDS_CHARS]})", known[2])
    return KubeError(f"kubectl: {words}")
