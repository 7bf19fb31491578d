"""What a kernel log holds, host by host, kept in bounded memory however long it is.

Of every kind of event of every device the first few and the newest are kept and all are counted, so
a flood of one kind neither fills memory nor pushes out another.
"""

from __future__ import annotations

import re
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from msgspec import structs

from console.diagnose.kernel_records import Frame, Record, records
from console.diagnose.text import Line
from probes.kernel_lines import LOAD_LINES, KernelEvent, event_of, load_message, opens_load
from probes.kernel_prefix import Stamp, split

FIRST, NEWEST = 8, 40
"""Events kept of one kind and device."""
KEYS = 400
"""Kinds and devices kept of one host; more are only counted."""
HOSTS = 256
TOTAL = 12_000
"""Events kept of the whole input, about 1 KB each."""
TEXT_CHARS = 500
BOOT_S, STEP_BACK_S = 600.0, 60.0
"""A stamp that falls back this far to this early is a new boot even where its first lines are cut
off (our estimate)."""
AHEAD_S = 86400.0
"""How far a stamp may be ahead of our clock before its year must be last year's."""


class Kept(NamedTuple):
    """One event of the input."""

    event: KernelEvent
    stamp: Stamp
    source: str
    """Section and form: two readers of one event differ in it."""
    boot: int
    """Number of boots seen in this source before it."""


class Ring:
    """Events of one kind and device: the first, the newest, and how many."""

    __slots__ = ("first", "newest", "seen")

    def __init__(self) -> None:
        self.first: list[Kept] = []
        self.newest: deque[Kept] = deque(maxlen=NEWEST)
        self.seen = 0

    def add(self, kept: Kept) -> bool:
        """Whether one more is held now."""
        self.seen += 1
        if len(self.first) < FIRST:
            self.first.append(kept)
            return True
        full = len(self.newest) == NEWEST
        self.newest.append(kept)
        return not full

    def events(self) -> Iterator[Kept]:
        """As they came."""
        yield from self.first
        yield from self.newest


class Host:
    """What the input tells of one host."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rings: dict[tuple[object, ...], Ring] = {}
        self.left_out = 0
        self.sources: set[str] = set()
        self.boots: Counter[str] = Counter()
        self.last_mono: dict[str, float] = {}
        self.boot_ids: dict[str, str] = {}
        self.newest_wall: float | None = None

    def kept(self) -> list[Kept]:
        """All that is held, in no order."""
        return [kept for ring in self.rings.values() for kept in ring.events()]


class Log:
    """The whole input: hosts, clocks that it states, and how its stamps had to be read."""

    def __init__(self, host: str = "", command: str = "") -> None:
        self.hosts: dict[str, Host] = {}
        self.now: float | None = None
        """Epoch seconds that a `date` in the input states."""
        self.uptime: float | None = None
        self.lines = 0
        """Lines that held an event."""
        self.not_xids = 0
        self.stamped = True
        """Whether the last line has a stamp of any log; text without any event or stamp is none."""
        self.forms: Counter[str] = Counter()
        self.unzoned = self.yearless = False
        self.stepped_back = False
        self.denied = ""
        self.hosts_left_out = 0
        self._host = host
        self._section = 0
        self._earlier = _boots_back(command)
        """How many boots back the reader of this section was asked to look."""
        self._total = 0
        self._waiting: dict[tuple[str, str], list[Record]] = {}

    # ------------------------------------------------------------------ reading

    def read(self, lines: Iterable[Line]) -> None:
        """Take in everything; once."""
        year = time.gmtime().tm_year
        last: Record | None = None
        for found in records(lines, year):
            if isinstance(found, Frame):
                self._frame(found)
            else:
                last = found
                self._record(found, year)
        for waiting in list(self._waiting.values()):
            self._joined(waiting)
        if last is not None:
            self.stamped = bool(last.stamp.form)
            self._dated(self._of(last.stamp), last.stamp)

    def _record(self, record: Record, year: int) -> None:
        stamp = _past(record, year)
        if "ermission denied" in stamp.text or "not permitted" in stamp.text:
            self.denied = self.denied or stamp.text[:TEXT_CHARS]
        if record.dates_only:
            return
        source = f"{self._section} {stamp.form}"
        host = self._of(stamp)
        if stamp.text.startswith("Linux version ") and stamp.program in ("", "kernel"):
            self._booted(host, source)
            return
        key = (host.name, source)
        if key in self._waiting:
            self._waiting[key].append(record._replace(stamp=stamp))
            if len(self._waiting[key]) >= LOAD_LINES:
                self._joined(self._waiting.pop(key))
            return
        if opens_load(stamp.text):
            self._waiting[key] = [record._replace(stamp=stamp)]
            return
        self._event(record._replace(stamp=stamp), host, source)

    def _joined(self, waiting: list[Record]) -> None:
        """The driver's message about a card it cannot use, or what the lines are by themselves."""
        head, *rest = waiting
        text = load_message(head.stamp.text, [record.stamp.text for record in rest])
        whole = text != head.stamp.text
        for record in [head._replace(stamp=head.stamp._replace(text=text))] if whole else waiting:
            stamp = record.stamp
            self._event(record, self._of(stamp), f"{self._section} {stamp.form}")

    def _event(self, record: Record, host: Host, source: str) -> None:
        stamp = record.stamp
        self._follow_boots(record, host, source)
        event = _parsed(stamp.text[:TEXT_CHARS], stamp.program)
        if event is None:
            self.not_xids += "Xid" in stamp.text and "NVRM" in stamp.text
            return
        self.lines += 1
        self.forms[stamp.form or "plain"] += 1
        self.unzoned |= stamp.wall is not None and not stamp.zoned
        self.yearless |= stamp.yearless
        self._dated(host, stamp)
        event = structs.replace(
            event, mono=stamp.mono, wall=stamp.wall, prio=stamp.prio,
            line=record.raw[:TEXT_CHARS].strip(),
        )  # fmt: skip
        host.sources.add(source)
        self._keep(host, Kept(event, stamp, source, host.boots[source] - self._earlier))

    def _keep(self, host: Host, kept: Kept) -> None:
        event = kept.event
        where = event.pci or event.facts.get("dev") or event.facts.get("server")
        key = (event.kind, where, event.code, event.facts.get("what"), event.facts.get("cpu"))
        ring = host.rings.get(key)
        if ring is None:
            if len(host.rings) >= KEYS or self._total >= TOTAL:
                host.left_out += 1
                return
            ring = host.rings[key] = Ring()
        if self._total < TOTAL or len(ring.first) >= FIRST:
            self._total += ring.add(kept)
        else:
            ring.seen += 1

    # ------------------------------------------------------------------ hosts, clocks, boots

    def _of(self, stamp: Stamp) -> Host:
        """The host of a line; lines without one belong to the prompt or heading above."""
        name = (stamp.host or self._host)[:253]
        key = name.partition(".")[0].lower() if not name[:1].isdigit() else name
        if key not in self.hosts:
            if len(self.hosts) >= HOSTS:
                self.hosts_left_out += 1
                return Host(name)
            self.hosts[key] = Host(name)
        return self.hosts[key]

    def _dated(self, host: Host, stamp: Stamp) -> None:
        if stamp.wall is not None and stamp.form not in ("ctime", "dmesg-iso"):
            host.newest_wall = max(host.newest_wall or 0.0, stamp.wall)

    def _booted(self, host: Host, source: str) -> None:
        """A boot begins; the first one of a source is not counted."""
        if source in host.last_mono or host.boot_ids.get(source):
            host.boots[source] += 1
        host.last_mono[source] = 0.0

    def _follow_boots(self, record: Record, host: Host, source: str) -> None:
        """New boot ids, and stamps that start again."""
        if record.boot_id:
            before = host.boot_ids.get(source)
            if before and before != record.boot_id:
                host.boots[source] += 1
            host.boot_ids[source] = record.boot_id
        mono = record.stamp.mono
        if mono is None or record.boot_id:
            return
        before_s = host.last_mono.get(source, 0.0)
        if mono < BOOT_S and mono < before_s - STEP_BACK_S:
            host.boots[source] += 1
            self.stepped_back = True
        host.last_mono[source] = mono

    def _frame(self, frame: Frame) -> None:
        """Headings part sources; `date` and /proc/uptime give the clock; dashes name hosts."""
        text = frame.text
        if frame.host:
            self._host = frame.host
            return
        if text.startswith(("-- Boot ", "-- Reboot --")):
            self._reboot()
            return
        if _UPTIME.match(text):
            self.uptime = float(text.split()[0])
            return
        if (now := _stated(text)) is not None:
            self.now = now
            return
        if text.startswith(("#", "=", "$")):
            self._section += 1
            self._earlier = _boots_back(text)

    def _reboot(self) -> None:
        """The journal's own line between two boots: it parts all sources of the section."""
        for host in self.hosts.values():
            for source in host.sources:
                if source.startswith(f"{self._section} "):
                    host.boots[source] += 1


@lru_cache(maxsize=1024)
def _parsed(text: str, program: str) -> KernelEvent | None:
    """The event of a message, undated: the lines of a flood are alike."""
    return event_of(Stamp(text, program=program))


_BOOTS_BACK = re.compile(r"journalctl\b.{0,80}?(?:\s-b\s*|--boot[= ])-(?P<number>\d{1,3})\b")


def _boots_back(command: str) -> int:
    """1 for `journalctl -k -b -1`; 0 for the running boot and whatever names none."""
    match = _BOOTS_BACK.search(command)
    return int(match["number"]) if match else 0


def _stated(text: str) -> float | None:
    """The time of a line that holds nothing else, in the forms of `date`, `date -Is` and ISO."""
    zone = re.search(r" (?:UTC|GMT) (?=\d{4}$)", text)
    if zone:
        text = f"[{text[: zone.start()]} {text[zone.end() :]}]"
    stamp = split(text.replace(" UTC", "+00:00") + " ")
    return None if stamp.text.strip() else stamp.wall


_UPTIME = re.compile(r"^\d{1,10}\.\d\d \d{1,12}\.\d\d$")


def _past(record: Record, year: int) -> Stamp:
    """The stamp with last year's number where this year's would lie in the future."""
    stamp = record.stamp
    if not stamp.yearless or (stamp.wall is not None and stamp.wall <= time.time() + AHEAD_S):
        return stamp
    for earlier in (year - 1, year - 2, year - 3, year - 4):  # 29 February needs up to four
        again = split(record.raw or "", earlier)
        if again.wall is not None:
            return again
    return stamp
