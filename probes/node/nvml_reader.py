"""Asking one GPU several things in one tick: values, unsupported questions, worst return code."""

from probes.node.context import Stuck
from probes.node.nvml_library import (
    FIELD_SOFT,
    FINAL,
    NO_PERMISSION,
    SEVERITY,
    SOFT,
    UNSUPPORTED,
    VALUE_TYPES,
    Failed,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

    from probes.node.context import Context
    from probes.node.nvml_library import Gpu, Library

    Number = Union[int, float]
    Field = Tuple[int, int]
    Values = Dict[str, Any]


class Reader:
    """One GPU in one tick. Absent answers are left out of `values`; failures go to nvml_rc."""

    def __init__(self, library: "Library", gpu: "Gpu") -> "None":
        """Begins with what the look-up of the handle already said."""
        self.values: "Values" = {"index": gpu.index}
        self.gpu = gpu
        self._library = library
        self._failure = gpu.failure
        self._over = gpu.handle is None
        self.rc = 0
        """Return code of the last question that was asked; 0 when it was answered."""
        self.refused = ""
        """The first call that this login may not make."""
        self._unsupported = library.unsupported.setdefault(gpu.key, set())

    @property
    def pynvml(self) -> "Any":
        """NVIDIA's binding, for its constants and structures."""
        return self._library.pynvml

    def ask(
        self, name: "str", *args: "Any", key: "Any" = None, soft: "frozenset[int]" = SOFT
    ) -> "Any":
        """The answer of a call with this GPU's handle, or None. Raises Stuck.

        `key` names the question in the book of unsupported ones where `args` hold an output buffer;
        `soft` are the return codes that are no fault of the GPU.
        """
        question = (name,) + args if key is None else (name, key)
        return self._ask(question, soft, name, (self.gpu.handle,) + args)

    def ask_library(self, name: "str", *args: "Any", key: "Any") -> "Any":
        """As ask, of a call that takes no handle but is about this GPU (samples it made)."""
        return self._ask((name, key), SOFT, name, args)

    def _ask(
        self, question: "Any", soft: "frozenset[int]", name: "str", args: "Tuple[Any, ...]"
    ) -> "Any":
        if self._over or question in self._unsupported:
            return None
        self.rc = 0
        try:
            return self._library.call(name, *args, device=self.gpu.key)
        except Failed as failure:
            self.rc = failure.rc
            if failure.rc == NO_PERMISSION:
                self.refused = self.refused or failure.call
            if failure.rc in UNSUPPORTED or failure.rc in soft - SOFT:
                self._unsupported.add(question)
            self._note(failure, soft)
            return None

    def ask_once(self, name: "str", *args: "Any") -> "Any":
        """As ask, for what cannot change in a session (maximum clocks)."""
        question = (self.gpu.key, name) + args
        known = self._library.constants.get(question)
        if known is None:
            known = self.ask(name, *args)
            if known is not None:
                self._library.constants[question] = known
        return known

    def constant(self, name: "str") -> "Any":
        """What `remember` kept of this GPU in this session, or None."""
        return self._library.constants.get((self.gpu.key, "constant", name))

    def remember(self, name: "str", value: "Any") -> "None":
        """Keep what cannot change in a session."""
        self._library.constants[self.gpu.key, "constant", name] = value

    def slowest(self) -> "Optional[Tuple[float, str]]":
        """The longest call on this GPU since the last time this was asked, by any probe."""
        return self._library.take_slowest(self.gpu.key)

    def fields(self, wanted: "Iterable[Field]") -> "Dict[Field, Number]":
        """Field values (id, scope) in one call; what is not readable is not in the answer."""
        asked = [field for field in wanted if field not in self._unsupported]
        if not asked:
            return {}
        values = self.ask("nvmlDeviceGetFieldValues", asked, key=len(asked), soft=FIELD_SOFT)
        found = {}
        for field, value in zip(asked, values or ()):
            number = self._field(field, value)
            if number is not None:
                found[field] = number
        return found

    def _field(self, field: "Field", value: "Any") -> "Optional[Number]":
        rc = int(value.nvmlReturn)
        if rc == 0:
            return _number(value)
        if rc in FIELD_SOFT:
            if rc not in SOFT or rc in UNSUPPORTED:
                self._unsupported.add(field)
        else:
            self._note(Failed(rc, "nvmlDeviceGetFieldValues[%d]" % field[0]), FIELD_SOFT)
        return None

    def mode_is(self, name: "str", mode: "object") -> "None":
        """Tell what decides what is supported (MIG, links up); a change reopens all questions."""
        question = (self.gpu.key, "mode", name)
        if self._library.constants.get(question, mode) != mode:
            self._unsupported.clear()
        self._library.constants[question] = mode

    def mode(self, name: "str") -> "Any":
        """What `mode_is` was told last, by whichever probe; None before."""
        return self._library.constants.get((self.gpu.key, "mode", name))

    def put(self, **values: "Any") -> "None":
        """Add metrics; None is left out."""
        self.values.update((name, value) for name, value in values.items() if value is not None)

    def done(self) -> "Values":
        """The sample: values, and nvml_rc with nvml_call when the GPU itself failed."""
        if self._failure is not None:
            self.values["nvml_rc"] = self._failure.rc
            self.values["nvml_call"] = self._failure.call
        return self.values

    def _note(self, failure: "Failed", soft: "frozenset[int]") -> "None":
        if failure.rc in soft:
            return
        self._over = self._over or failure.rc in FINAL
        before = -1 if self._failure is None else SEVERITY.get(self._failure.rc, 0)
        if SEVERITY.get(failure.rc, 0) > before:
            self._failure = failure


def each_gpu(
    ctx: "Context", ask: "Callable[[Reader], None]", fresh: "bool" = False
) -> "Dict[str, Values]":
    """{device: values} of every GPU that answered. One GPU's trouble never hides another.

    Empty when there is no NVML (the inventory probe says why). A stuck GPU is left out; raises
    Stuck when the driver as a whole is.
    """
    library = ctx.nvml
    if library is None:
        return {}
    try:
        gpus = library.gpus(fresh)
    except Failed:
        return {}
    answers = {}
    for gpu in gpus:
        if gpu.handle is None and gpu.failure is None:
            continue
        try:
            reader = Reader(library, gpu)
            ask(reader)
            answers[gpu.key] = reader.done()
        except Stuck:
            continue
    return answers


def field_id(pynvml: "Any", name: "str", number: "int") -> "int":
    """The binding's constant, or the number where an older binding has no name for it."""
    return int(getattr(pynvml, name, number))


def _number(value: "Any") -> "Optional[Number]":
    kind = int(value.valueType)
    if kind >= len(VALUE_TYPES):
        return None
    number = getattr(value.value, VALUE_TYPES[kind])
    return number if isinstance(number, float) else int(number)


def scoped(ids: "List[int]", links: "int") -> "List[Field]":
    """Every field for every link."""
    return [(number, link) for link in range(links) for number in ids]
