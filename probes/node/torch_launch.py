"""Starts this node's ranks of a torch test and keeps them together with those of other nodes.

Run by the site's torch interpreter, but needs no torch: a rank that cannot import it is named, too.
Rank 0 of the whole test is a rank of node rank 0; the ranks' own rendezvous is a port that it has
free, told to all when they have met (torch_meet.py). The last line says why a test failed.
"""

import argparse
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time

from probes.node.torch_meet import ANSWER_S, KILLED, SYMPTOM, Meeting, Over, interface_of

SETTLE_S = 1.0
"""A better reason may come this much later than the first one."""
STEP_S = 0.1
PDEATHSIG = 1
"""PR_SET_PDEATHSIG, linux/prctl.h."""


class Launch:
    """The ranks of this node."""

    def __init__(self, ask: "argparse.Namespace", meeting: "Meeting") -> "None":
        self.ask = ask
        self.meeting = meeting
        self.ranks: "list[subprocess.Popen[bytes]]" = []
        self._said_done = False

    def start(self) -> "None":
        """Start them; the other nodes have been met."""
        ask, met = self.ask, self.meeting
        addr = ask.master_addr if met.peers else "127.0.0.1"
        here = met.peers[0].socket.getsockname()[0] if met.peers else addr
        env = dict(os.environ, WORLD_SIZE=str(met.world), LOCAL_WORLD_SIZE=str(ask.nproc))
        env.update(MASTER_ADDR=addr, MASTER_PORT=str(met.port), LIMIT_S=str(ask.limit_s))
        env["NODE_NAME"] = met.name(ask.node_rank) if met.names else socket.gethostname()
        interface = interface_of(here)
        for variable in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
            if interface:
                env.setdefault(variable, interface)
        for local_rank in range(ask.nproc):
            env.update(RANK=str(met.first + local_rank), LOCAL_RANK=str(local_rank))
            argv = [sys.executable, "-c", ask.worker] + ask.rest
            self.ranks.append(subprocess.Popen(argv, env=env, preexec_fn=die_with_parent))

    def watch(self) -> "str":
        """Until every rank here and every other node is done; why it failed, or ""."""
        met = self.meeting
        until, decide = time.monotonic() + self.ask.limit_s, float("inf")
        while not met.verdict:
            known = len(met.reasons)
            self._ranks_ended()
            met.hear(STEP_S)
            if time.monotonic() > until and not met.reasons:
                met.reasons.append((0, "it did not end within %g s" % self.ask.limit_s))
            if met.reasons and not known:
                decide = time.monotonic() + (SETTLE_S if met.leads else ANSWER_S)
            for weight, text in () if met.leads else met.reasons[known:]:
                met.tell(bad=[weight, text])
            if met.reasons and (time.monotonic() > decide or (met.alone and not met.leads)):
                met.verdict = max(met.reasons, key=lambda one: one[0])[1]
            elif not met.reasons and self._all_done():
                met.tell(done=1)
                return ""
        met.tell(bad=[0, met.verdict])
        return met.verdict

    def _ranks_ended(self) -> "None":
        met = self.meeting
        for number, rank in enumerate(self.ranks):
            code = rank.poll()
            if not code:
                continue
            where = (met.first + number, met.name(self.ask.node_rank), number)
            how = "failed with exit status %d" if code > 0 else "was killed by signal %d"
            text = "rank %d (%s, local rank %d) " % where + how % abs(code)
            reason = (SYMPTOM if code > 0 else KILLED, text)
            if reason not in met.reasons:
                met.reasons.append(reason)

    def _all_done(self) -> "bool":
        """Whether this node may leave: the first one stays until all others are done."""
        met = self.meeting
        if any(rank.returncode != 0 for rank in self.ranks):
            return False
        if not met.leads and not self._said_done:
            self._said_done = True
            met.tell(done=1)
        return all(peer.done for peer in met.peers)

    def end(self) -> "None":
        """Kill the ranks that are left, and leave the other nodes."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for rank in self.ranks:
                if rank.poll() is None:
                    rank.send_signal(number)
            end = time.monotonic() + 1.0
            while any(rank.poll() is None for rank in self.ranks) and time.monotonic() < end:
                time.sleep(0.02)
        for peer in self.meeting.peers:
            peer.socket.close()


def die_with_parent() -> "None":
    """In the child: SIGKILL when the launcher dies, however it does."""
    ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def options() -> "argparse.Namespace":
    """Of this launcher; what follows "--" goes to the ranks."""
    parser = argparse.ArgumentParser()
    for name, default in (("nproc", 1), ("nnodes", 1), ("node-rank", 0), ("master-port", 0)):
        parser.add_argument("--" + name, type=int, default=default)
    for name, seconds in (("join-s", 60.0), ("limit-s", 120.0)):
        parser.add_argument("--" + name, type=float, default=seconds)
    for name in ("master-addr", "names", "token"):
        parser.add_argument("--" + name, default="")
    parser.add_argument("--worker", required=True)
    at = sys.argv.index("--")
    ask = parser.parse_args(sys.argv[1:at])
    ask.rest = sys.argv[at + 1 :]
    return ask


def main() -> "int":
    """Exit status 0 when all nodes' ranks ended well; else the last line says why."""
    ask = options()
    meeting = Meeting(ask)
    launch = Launch(ask, meeting)
    try:
        meeting.meet()
        launch.start()
        failed = launch.watch()
    except Over as over:
        failed = str(over.args[1])
        meeting.tell(bad=list(over.args))
    except OSError as error:
        failed = "the nodes cannot meet: %s" % (error.strerror or error)
    launch.end()
    if failed:
        sys.stdout.write("# failed %s\n" % failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
