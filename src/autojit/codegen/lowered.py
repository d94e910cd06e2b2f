"""A lowered step: which bodies run on which buffers, as data without addresses.

Entries name a body (the text of a kernel, or a built-in of the plan runner) and list symbolic arguments;
``runtime.plan`` binds them to memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from functools import reduce

from autojit.codegen.grid_text import GridText
from autojit.core.device import CPU, Device
from autojit.core.dtypes import DType
from autojit.core.foreign_functions import ForeignFunction
from autojit.core.records import record
from autojit.core.sizes import size_max
from autojit.ir.graph import Node, Value
from autojit.ir.op import Op
from autojit.schedule.kernels import StructuredKernel
from autojit.schedule.schedule import Schedule


@record
class Words:
    """Constant 64-bit words passed by address."""

    words: tuple[int, ...]


@record
class Offset:
    """A buffer's address plus bytes: so many bytes of it from there, or all that follow (None)."""

    value: Value | Scratch
    offset_bytes: int
    size_bytes: int | None = None


@record(eq=False)
class Scratch:
    """Memory of one entry on a device: ``size_bytes``, times the number of workers if ``per_worker``."""

    size_bytes: int
    per_worker: bool
    device: Device = CPU


@record(eq=False)
class Immediate:
    """A 64-bit word in place of a pointer."""

    word: int


@record(eq=False)
class ProductAddress:
    """The address of the matrix product of a dtype, for a kernel that calls it."""

    dtype: DType


@record(eq=False)
class ForeignAddress:
    """The address of a function of another library, for a kernel that calls it."""

    function: ForeignFunction


@record(eq=False)
class ErrorWords:
    """The address of the step's error words (see ``kernel_text``)."""


@record(eq=False)
class GroupAddress:
    """The address of the words of a group of processes (`plan.records.GroupWords`)."""

    group: str


@record(eq=False)
class Callback:
    """An op without native lowering: computed by its eager rule, called from the step; counted as a fallback."""

    kernel: StructuredKernel


@record(eq=False)
class Sliced:
    """An argument of a band's kernel: an address that moves with the slice (and with the worker, if local)."""

    base: Value | Scratch
    offset_bytes: int  # into the value, or into the worker's local memory
    per_slice_bytes: int
    is_local: bool


@record(eq=False)
class Word:
    """The address of one word that entries share: ``initial`` until one of them writes it."""

    initial: int = 0


@record(eq=False)
class Tape:
    """The address of a growing tape's words (see `plan.control`); ``record_bytes`` are pushed per step.

    The tapes ``beside`` it, in the memory of other devices, grow with it.
    """

    record_bytes: int
    device: Device = CPU
    beside: tuple[Tape, ...] = ()


@record(eq=False)
class Mover:
    """The address of what copies so many bytes within a device's memory (see `plan.control`)."""

    device: Device
    size_bytes: int


@record(eq=False)
class Nested:
    """The address of the pointer table of a plan inside the plan, which an entry runs as often as it likes.

    ``arguments`` fill the table: inputs, then outputs.
    """

    lowered: LoweredStep
    arguments: tuple[Argument, ...]


@record(eq=False)
class Count:
    """The address of the word that holds a size the step counts itself."""

    name: str


@record(eq=False)
class Recount:
    """The whole context of an entry that works out what depends on a size that was just counted."""

    name: str


@record(eq=False)
class Launch:
    """A kernel on a device: its buffers, whole values, rows of them or scratch there; numbers of the host go by value.

    ``commits``: it writes what lasts after the step, so it does nothing once an error was reported. ``partials``:
    where its partial results are; None: in memory of its own.
    """

    kernel: GridText
    buffers: tuple[Value | Offset | Scratch, ...]
    label: str
    code: int = 0  # of its reports, where it has any
    commits: bool = False
    nodes: tuple[Node, ...] = ()  # that it computes, for profiles
    partials: Scratch | None = None


@record(eq=False)
class DeviceCopy:
    """Bytes copied within a device."""

    target: Value | Offset | Scratch
    source: Value | Offset | Scratch
    size_bytes: int
    commits: bool = False


@record(eq=False)
class DeviceFill:
    """Bytes of a device set to zero."""

    target: Value | Offset | Scratch
    size_bytes: int
    commits: bool = False


@record(eq=False)
class Conditional:
    """Work that a device does only if a byte of its own is set, or not set, or again as long as it is.

    Args:
        condition: the byte; work that repeats writes it.
        work: in order.
        repeats: it is done again and again.
        is_negated: it is done if the byte is not set.
    """

    condition: Value | Offset | Scratch
    work: tuple[DeviceWork, ...]
    repeats: bool
    is_negated: bool = False


DeviceWork = Launch | DeviceCopy | DeviceFill | Conditional


def simple_work(work: Iterable[DeviceWork]) -> Iterator[Launch | DeviceCopy | DeviceFill]:
    """What is in some work, each item once."""
    for item in work:
        if isinstance(item, Conditional):
            yield from simple_work(item.work)
        else:
            yield item


@record(eq=False)
class DeviceRun:
    """What a device does from one wait of the host to the next: the context of an entry ``@aj_device``."""

    device: Device
    work: tuple[DeviceWork, ...]


@record(eq=False)
class Transfer:
    """The context of an entry ``@aj_copy_in`` or ``@aj_copy_out``: a value copied between host and device memory."""

    target: Value
    source: Value

    @property
    def device(self) -> Device:
        """The one of the two that is not the host."""
        places = self.target.type.device, self.source.type.device
        return places[0] if places[0] != CPU else places[1]


Argument = (
    Value
    | DeviceRun
    | Transfer
    | Words
    | Offset
    | Scratch
    | Immediate
    | ProductAddress
    | ForeignAddress
    | GroupAddress
    | Sliced
    | ErrorWords
    | Word
    | Tape
    | Mover
    | Nested
    | Count
    | Recount
)


@record(eq=False)
class Entry:
    """One body run over chunks."""

    body: str | Callback  # kernel text, or "@name" of a built-in
    symbol: str
    arguments: tuple[Argument, ...]
    chunks: int
    estimate_ns: float
    label: str


@record(eq=False)
class BandEntry:
    """Kernels run slice by slice; ``told`` says which bodies are passed the slice number."""

    entries: tuple[Entry, ...]
    told: tuple[bool, ...]
    chunks: int
    local_bytes: int
    estimate_ns: float
    label: str = "band"


@record(eq=False)
class Reporter:
    """A kernel that can report errors: its nodes, the nodes behind its look-up sites, the ops that can fail."""

    nodes: tuple[Node, ...]
    lookups: tuple[Node, ...]
    failing: tuple[Op, ...] = ()


def _tell_nobody(text: str) -> None:
    """Nothing happens before the step is lowered."""


@record(eq=False)
class Shared:
    """What a step and the plans inside it gather together while they are lowered; see `LoweredStep`.

    ``begin`` is told the text of every kernel as soon as it is printed.
    """

    begin: Callable[[str], object] = _tell_nobody
    reporters: list[Reporter] = field(default_factory=list)
    called_back: list[Op] = field(default_factory=list)
    gemms: set[str] = field(default_factory=set)


@record(eq=False)
class BatchEntry:
    """Independent entries whose chunks are handed out together."""

    entries: tuple[Entry, ...]
    chunks: int
    estimate_ns: float
    label: str = "batch"


@record(eq=False)
class LoweredStep:
    """Entries in order, with what they need."""

    schedule: Schedule
    entries: tuple[Entry | BandEntry | BatchEntry, ...]
    gemm_dtypes: frozenset[str]
    called_back: tuple[Op, ...] = field(default=())  # the ops that Python computes, also in plans inside
    reporters: tuple[Reporter, ...] = field(default=())  # by code
    origins: tuple[tuple[Node, ...], ...] = field(default=())  # of every entry: the nodes it computes
    writes: tuple[tuple[Value, ...], ...] = field(default=())  # of every entry: what its kernel writes
    may_fail: tuple[bool, ...] = field(default=())  # of every entry: whether its kernel may report an error

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """What is called back from the step, as users know it."""
        return tuple([op.shown_name for op in self.called_back])

    @property
    def computed_back(self) -> tuple[str, ...]:
        """The ops that Python computes: the schedule does not know that these may fail. Users' functions are not among
        them, for which the writers of what lasts wait.
        """
        return tuple([op.shown_name for op in self.called_back if not op.calls_out])

    def single_entries(self) -> list[Entry]:
        """The entries, those of bands and batches one by one."""
        return [part for e in self.entries for part in ((e,) if isinstance(e, Entry) else e.entries)]

    def device_runs(self) -> list[DeviceRun]:
        """What devices are told, in order."""
        return [a for e in self.single_entries() for a in e.arguments if isinstance(a, DeviceRun)]

    def scratch_bytes(self, workers: int) -> int:
        """What the host's entries work in: partial results, and what so many workers have at a time at most.

        A symbolic size where sizes are open; what bands keep from kernel to kernel is not counted.
        """
        found = {a for e in self.single_entries() for a in e.arguments if isinstance(a, Scratch) and a.device == CPU}
        of_worker = reduce(size_max, [s.size_bytes for s in found if s.per_worker], 0)
        return sum(s.size_bytes for s in found if not s.per_worker) + workers * of_worker

    def plans_inside(self) -> list[LoweredStep]:
        """The steps that entries run as often as they like."""
        return [a.lowered for e in self.single_entries() for a in e.arguments if isinstance(a, Nested)]

    def counted_sizes(self) -> tuple[str, ...]:
        """The names of the sizes that the step counts, those of plans inside behind its own."""
        mine = [a.name for e in self.single_entries() for a in e.arguments if isinstance(a, Recount)]
        inner = (name for plan in self.plans_inside() for name in plan.counted_sizes())
        return tuple(dict.fromkeys([*mine, *inner]))


LowerInner = Callable[[Schedule], LoweredStep]
"""What lowers the schedule of a branch's or loop's body."""


def scratch_of(entry: Entry) -> list[Scratch]:
    """The scratch memory among the arguments of an entry."""
    found = [a for a in entry.arguments if isinstance(a, Scratch)]
    return found + [a.base for a in entry.arguments if isinstance(a, Sliced) and isinstance(a.base, Scratch)]


def is_device_run(entry: Entry | BandEntry | BatchEntry) -> bool:
    """Whether an entry is all that a device does."""
    return isinstance(entry, Entry) and bool(entry.arguments) and isinstance(entry.arguments[0], DeviceRun)
