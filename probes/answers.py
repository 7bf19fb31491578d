"""One node's frames become Events: sanitised, counted, dated by the bastion. Pure but for memory.

A hostile or broken node may send any number of probes, devices and metrics; what exceeds the limits
below is left out and said once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import cast

from probes.event import Event, NodeState, NodeStatus, Row, Sample, Scalar
from probes.sanitise import clean
from probes.wire import NUMBER_MAX, Err, Hello, Hung, Job, Tick, Unhung, sane

PROBES_MAX = 32
DEVICES_MAX = 128
"""Per probe and session: 16 GPUs, 64 IB ports or mount points leave room."""
ALL_DEVICES_MAX = 512
"""Of all probes together: twice 16 GPUs in eight probes and as many ports."""
METRICS_MAX = 256
"""Per device: 18 NVLinks x 5 readings, or 21 + 29 InfiniBand counters and a dozen facts."""
ROWS_MAX = 2000
ROW_FIELDS_MAX = 32
NAME_CHARS = 64
TEXT_CHARS = 300
ROW_TEXT_CHARS = 500
"""The kernel_log probe cuts its lines there."""

PLAIN_NAMES_MAX = 4096
"""Ten times the metrics of all probes; a node that invents names only takes the slow way."""

HUNG_MAX_S = 1e9
"""31 years; whatever has hung longer than that is no time of a node's clock."""

EARLY_MAX_S = 60.0
"""No tick takes longer than a few deadlines of 5 s; anything else is no time of a reading."""

DRIFT = 1e-4
"""Two clocks may drift apart by 100 ppm, twice what a quartz does without NTP; see `Clock`."""


class Clock:
    """The node's monotonic seconds -> the bastion's epoch seconds.

    The frame that travelled fastest so far gives the offset; `DRIFT` lets the estimate follow a
    clock that runs slow. Nothing is ever dated in the future, or before the session began.
    """

    __slots__ = ("_began", "_offset", "_updated")

    def __init__(self, node_mono: float, mono: float) -> None:
        """Both clocks at the hello: the node's, and ours (time.monotonic)."""
        self._offset = mono - node_mono
        self._began = self._updated = mono

    def epoch(self, t: float, mono: float, now: float) -> float:
        """When the node's `t` was, by our time.time `now` and time.monotonic `mono`."""
        if not math.isfinite(t):
            return now
        self._offset += (mono - self._updated) * DRIFT
        self._updated = mono
        self._offset = min(self._offset, mono - t)
        age = min(max(0.0, mono - (self._offset + t)), mono - self._began)
        return now - age


class Answers:
    """Frames in, Events out, for one session with one node."""

    def __init__(self, node: str) -> None:
        """`node`: the inventory name that every Event carries."""
        self.node = node
        self.clock: Clock | None = None
        self.caps: list[str] = []
        self.answered: set[str] = set()
        """Probes that answered, hung or failed: they are accounted for."""
        self.over = 0
        """Things left out because a limit was reached."""
        self._devices: dict[str, set[str]] = {}
        self._count = 0
        """Devices of all probes together."""

    def hello(self, frame: Hello, mono: float, now: float) -> Sample:
        """The Sample "hello"; starts the clock."""
        node_mono = frame.mono if math.isfinite(frame.mono) else 0.0
        self.clock = Clock(node_mono, mono)
        self.caps = [self._name(cap) for cap in frame.caps[:PROBES_MAX]]
        values: dict[str, Scalar] = {
            "python": clean(frame.python, NAME_CHARS),
            "host": clean(frame.host, 255),
            "pid": frame.pid,
            "uid": frame.uid,
            "boot_id": clean(frame.boot_id, NAME_CHARS),
            "kernel": clean(frame.kernel, TEXT_CHARS),
            "os": clean(frame.os, TEXT_CHARS),
            "caps": ",".join(self.caps),
        }
        if frame.wall is not None and abs(frame.wall) < 1e11:
            values["wall_skew_s"] = round(frame.wall - now, 2)
        for what, why in list(frame.missing.items())[:PROBES_MAX]:
            values[f"missing.{self._name(what)}"] = clean(why, TEXT_CHARS)
        values = {name: value for name, value in values.items() if value != "" and sane(value)}
        return Sample(node=self.node, probe="hello", at=now, clock=node_mono, values=values)

    def tick(self, frame: Tick, mono: float, now: float) -> Iterator[Sample]:
        """The Samples of one probe tick, one per device; rows are about one of them, mostly ""."""
        probe = self._name(frame.p)
        devices = self._known(probe, [self._name(device) for device in frame.d])
        if devices is None:
            return
        self.answered.add(probe)
        at = self._at(frame.t, mono, now)
        clock = frame.t if math.isfinite(frame.t) else 0.0
        rows = [self._row(row) for row in frame.r[:ROWS_MAX]]
        self.over += max(0, len(frame.r) - ROWS_MAX)
        if frame.on not in frame.d and (rows or not (frame.d or frame.gone)):
            yield Sample(node=self.node, probe=probe, at=at, clock=clock, rows=rows)
        for raw, values in frame.d.items():
            device = self._name(raw)
            if device in devices:
                own = rows if raw == frame.on else []
                kept = self._values(values, METRICS_MAX, TEXT_CHARS)
                early_s = _early_s(frame, raw)
                yield Sample(
                    node=self.node,
                    probe=probe,
                    device=device,
                    at=self._at(frame.t - early_s, mono, now) if early_s else at,
                    clock=clock - early_s,
                    values=kept,
                    rows=own,
                )
        yield from self._gone(probe, frame.gone, at, clock)

    def _gone(self, probe: str, gone: list[str], at: float, clock: float) -> Iterator[Sample]:
        """A device that vanished answers one last time, with nothing but `gone`."""
        for device in map(self._name, gone[:DEVICES_MAX]):
            if device in self._devices.get(probe, ()):
                yield Sample(
                    node=self.node,
                    probe=probe,
                    device=device,
                    at=at,
                    clock=clock,
                    values={"gone": True},
                )

    def _known(self, probe: str, devices: Iterable[str]) -> set[str] | None:
        """The devices of this tick that fit under the limits; None when the probe does not."""
        if probe not in self._devices:
            if len(self._devices) >= PROBES_MAX:
                self.over += 1
                return None
            self._devices[probe] = set()
        known = self._devices[probe]
        kept: set[str] = set()
        for device in devices:
            room = len(known) < DEVICES_MAX and self._count < ALL_DEVICES_MAX
            if device in known or room:
                self._count += device not in known
                known.add(device)
                kept.add(device)
            else:
                self.over += 1
        return kept

    def trouble(self, frame: Hung | Unhung | Err, mono: float, now: float) -> NodeStatus | None:
        """A probe's own state as a status of that probe; None above the limits."""
        probe = self._name(frame.p)
        device = "" if isinstance(frame, Err) else self._name(frame.dev)
        if not self._known(probe, [device]):
            return None
        self.answered.add(probe)
        at = self._at(frame.t, mono, now)
        if isinstance(frame, Err):
            text = clean(frame.text, TEXT_CHARS) or "the probe failed"
            return NodeStatus(
                node=self.node,
                at=at,
                state=NodeState.DEGRADED,
                reason="probe",
                probe=probe,
                text=text,
            )
        if isinstance(frame, Unhung):
            return NodeStatus(
                node=self.node,
                at=at,
                state=NodeState.UP,
                probe=probe,
                device=device,
                text="answers again",
            )
        return self._hung(frame, probe, device, at)

    def _hung(self, frame: Hung, probe: str, device: str, at: float) -> NodeStatus:
        since_s = None
        if frame.since is not None and abs(frame.t - frame.since) <= HUNG_MAX_S:
            since_s = max(0.0, frame.t - frame.since)
        call = clean(frame.call, NAME_CHARS) or "a driver call"
        lasting = "" if since_s is None else f" for {since_s:.0f} s"
        return NodeStatus(
            node=self.node,
            at=at,
            state=NodeState.HUNG,
            reason="hung",
            probe=probe,
            device=device,
            since_s=since_s,
            text=f"hung in {call}{lasting}",
            hint="that call does not return; the other probes go on",
        )

    def job(self, frame: Job, now: float) -> Sample | None:
        """The Sample "job" of an active test; its device is the test's id. None: one too many."""
        device = self._name(frame.id)
        if not self._known("job", [device]):
            return None
        values: dict[str, Scalar] = {"state": self._name(frame.state)}
        if frame.text:
            values["text"] = clean(frame.text, TEXT_CHARS)
        if frame.rc is not None and sane(frame.rc):
            values["rc"] = frame.rc
        return Sample(node=self.node, probe="job", device=device, at=now, values=values)

    def silent(self) -> list[str]:
        """Probes of the hello that never answered in any way."""
        return [cap for cap in self.caps if cap not in self.answered]

    def _at(self, t: float, mono: float, now: float) -> float:
        return now if self.clock is None else self.clock.epoch(t, mono, now)

    def _name(self, raw: str) -> str:
        return (
            raw
            if raw.isascii() and raw.isprintable() and len(raw) <= NAME_CHARS
            else clean(raw, NAME_CHARS)
        )

    def _row(self, row: Row) -> Row:
        return self._values(row, ROW_FIELDS_MAX, ROW_TEXT_CHARS)

    def _values(self, raw: dict[str, Scalar], most: int, chars: int) -> dict[str, Scalar]:
        if len(raw) <= most and _harmless(raw, chars):
            return raw
        kept: dict[str, Scalar] = {}
        for said, value in raw.items():
            if len(kept) >= most:
                self.over += 1
                break
            name = self._name(said)
            if name == said and len(_plain_names) < PLAIN_NAMES_MAX:
                _plain_names.add(name)
            if isinstance(value, str):
                kept[name] = clean(value, chars)
            elif sane(value):
                kept[name] = value
        return kept


_plain_names: set[str] = set()
"""Names of metrics that needed no cleaning when they first came, from whichever node."""


def _harmless(raw: dict[str, Scalar], chars: int) -> bool:
    """Whether going through it name by name would change nothing.

    Without a loop of our own: nearly all answers are, and this is where a stream's time goes.
    """
    if not _plain_names.issuperset(raw):
        return False
    numbers = cast("Collection[float]", raw.values())
    if str in set(map(type, numbers)):
        texts = [value for value in raw.values() if isinstance(value, str)]
        if max(map(len, texts)) > chars or not all(map(str.isprintable, texts)):
            return False
        numbers = [value for value in raw.values() if not isinstance(value, str)]
    # In this order: a sum of huge integers would not fit a float, and min and max pass over nan.
    return not numbers or (
        max(numbers) <= NUMBER_MAX and min(numbers) >= -NUMBER_MAX and math.isfinite(sum(numbers))
    )


def _early_s(frame: Tick, device: str) -> float:
    """Seconds that a device was read before the answer's own time."""
    early_s = frame.t - frame.at.get(device, frame.t)
    return early_s if 0 < early_s <= EARLY_MAX_S else 0.0


def events_of(
    answers: Answers, frame: Tick | Hung | Unhung | Err | Job, mono: float, now: float
) -> list[Event]:
    """All Events of one frame other than hello and end."""
    if isinstance(frame, Tick):
        return list(answers.tick(frame, mono, now))
    if isinstance(frame, Job):
        said: Event | None = answers.job(frame, now)
    else:
        said = answers.trouble(frame, mono, now)
    return [] if said is None else [said]
