"""What must hold for a compiled step to run, and what it returns: plain data for the entry points.

`EntrySpec` is read by two implementations of one behaviour: `entry` (native) and `entry_fallback` (Python, the
reference). Both answer a call with the step's result, or with one of the sentinels below and no side effect.

The records are named tuples because those are made in a tenth of the time at import; nothing compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from autojit.runtime.gate import Gate

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from autojit.core.device_array import Space


class Refusal(Enum):
    """Why the entry point did not run the step."""

    SLOW = "a guard does not hold"
    NEED_OUTPUT = "all output tensors of a ring are in use"
    BUSY = "the step is running in another thread"


class Missing(Enum):
    """`MISSING`: an empty slot, or a key that is not in the dictionary."""

    MISSING = "missing"


MISSING = Missing.MISSING
Slots = tuple[tuple[str, object], ...]


class ArrayCheck(NamedTuple):
    """An exact ``np.ndarray`` of this shape and dtype object, C-contiguous and aligned (and writeable if asked).

    Where ``space`` is given, a `DeviceArray` in that memory whose layout is such an array.
    Extents may be open sizes of `EntrySizes`: the first axis of each says its value (at least 2), others must agree.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    writeable: bool = False
    space: Space | None = None


class Behind(NamedTuple):
    """What a tensor looks at: its slot `part` holds None, or a `part_type` whose slot `owner` holds None, or an
    `owner_type` (or one of a subclass) whose slot `slot` holds `expected`.
    """

    part: str
    part_type: type
    owner: str
    owner_type: type
    slot: str
    expected: object


class TensorArgument(NamedTuple):
    """An object of exactly `tensor_type` whose slot `array_slot` holds a fitting array.

    Args:
        table_index: entry of the pointer table that gets the data pointer; None when the step does not read it.
        slot_equals: slots that must hold these very objects (or be empty: `MISSING`).
        behind: what must hold of what the tensor looks at, if anything.
    """

    tensor_type: type
    check: ArrayCheck
    table_index: int | None
    array_slot: str = "_array"
    slot_equals: Slots = ()
    behind: Behind | None = None


class ArrayArgument(NamedTuple):
    """A fitting array itself."""

    check: ArrayCheck
    table_index: int | None


class ObjectArgument(NamedTuple):
    """This very object: None, True, an interned string, a function."""

    expected: object


class EqualIntArgument(NamedTuple):
    """An exact int (not a bool) of this value, which the step has baked in."""

    value: int


INT64_LEAST, INT64_MOST = -(2**63), 2**63 - 1


class FloatArgument(NamedTuple):
    """A float of Python, or of NumPy (`of_type` is np.float64), stored in `cell` (0-d float64), where the table points.

    Its 64 bits, read as an int, are in [`least`, `most`]: bits of floats from 0 on are ordered as the floats are.
    """

    cell: npt.NDArray[np.float64]
    least: int = INT64_LEAST
    most: int = INT64_MOST
    of_type: type = float


class IntArgument(NamedTuple):
    """An int of Python, or of NumPy (`of_type` is np.int64), in [`least`, `most`], stored in `cell` (0-d int64), where
    the table points.
    """

    cell: npt.NDArray[np.int64]
    least: int = INT64_LEAST
    most: int = INT64_MOST
    of_type: type = int


Argument = TensorArgument | ArrayArgument | ObjectArgument | EqualIntArgument | FloatArgument | IntArgument


class SlotGuard(NamedTuple):
    """`owner`'s slot still holds `expected`: state whose memory the pointer table knows already, a gradient, a flag."""

    owner: object
    slot: str
    expected: object


class CellGuard(NamedTuple):
    """A closure cell still holds `expected`."""

    cell: Any
    expected: object


class WordGuard(NamedTuple):
    """The 64-bit word `counter[0]` (int64 array, at least one element) still equals `expected`: an epoch."""

    counter: npt.NDArray[np.int64]
    expected: int


class DictGuard(NamedTuple):
    """`mapping[key]` is still this very object, or still `MISSING`: globals, module attributes."""

    mapping: dict[str, Any]
    key: str
    expected: object


class Readers(NamedTuple):
    """How those who read a lent tensor hold its memory: by a `tensor_type` whose slot `array_slot` holds the array that
    is lent, whose slot `storage_slot` holds None or a `storage_type` with the array in its slot `root_slot`, and whose
    other slots are as `slot_equals` says, or they hold it in a way that nobody can follow.
    """

    tensor_type: type
    array_slot: str
    storage_slot: str
    storage_type: type
    root_slot: str
    slot_equals: Slots


class LentGuard(NamedTuple):
    """`owner`'s slot may hold `expected`, a tensor that belongs to the step and whose memory it writes (`table_index`).

    Its slot `lent_slot` holds the array that readers got, or None. After a call the slot holds `expected`, or what a
    reader had put in its place and nobody else holds. Where somebody does, the call is refused.

    Args:
        before: what the slot holds: "own" (`expected`, or what a reader has put there and dropped again), "none" (None)
            or "any": whatever it holds is replaced.
        table_index: entry of the pointer table that must point to the tensor's memory; None: other guards see to that.
    """

    owner: object
    slot: str
    expected: Any
    before: str
    lent_slot: str
    readers: Readers
    table_index: int | None = None


Guard = SlotGuard | CellGuard | WordGuard | DictGuard | LentGuard


class OutputRing(NamedTuple):
    """Pre-made tensors for one output, handed out again when nobody else holds them or their arrays.

    Args:
        make: a fresh tensor of the output's shape and dtype, held by nobody else.
        table_index: entry of the pointer table for its data pointer.
        slot_equals: slots that must be untouched for a tensor to be handed out again.
        capacity: tensors in the ring.
        is_open: the shape depends on open sizes.
    """

    make: Callable[[], Any]
    table_index: int
    array_slot: str = "_array"
    slot_equals: Slots = ()
    capacity: int = 4
    is_open: bool = False


class Output(NamedTuple):
    """In a result: the tensor of a ring, by its index."""

    ring: int


class Constant(NamedTuple):
    """In a result: an object that is always the same."""

    value: object


class EntrySizes(NamedTuple):
    """The sizes that a step leaves open.

    Args:
        symbols: their names, as extents of arguments print them.
        table: int64 array whose first words are their values; the step reads them.
        accepts: asked with new values before the first call that has them; False refuses the call. From then on rings
            make tensors for these values. None: all values are welcome, and no ring is open.
    """

    symbols: tuple[str, ...]
    table: npt.NDArray[np.int64]
    accepts: Callable[[tuple[int, ...]], bool] | None = None


class EntrySpec(NamedTuple):
    """One compiled step.

    Args:
        step_address: ``void aj_step(void **table)``.
        table_address: its pointer table, filled except for arguments and outputs.
        gate: the right to run the step and to touch what it uses.
        arguments: positional ones first, then one for each of `keyword_names`.
        identities: positions of two arguments, and whether they must be one object (else two).
        results: one item unless `returns_tuple`; a single `Constant(None)` for a step that returns nothing.
        releases_gil: let other Python threads run meanwhile; worth it above about 50 us of work.
        fallback: called with the call's arguments when the step cannot run (rings whose tensors are all in use are
            refilled and the call tried again first); without it a `Refusal` is returned.
        error_address: an int64 that the step sets when it fails; 0: it cannot fail.
        on_error: raises what the step met and clears that word; what it returns instead is what the call gives.
        sizes: the step's open sizes, if it has any.
        mend: asked by whoever has the gate when a `LentGuard` or one of ``followed`` fails, with its number: whether
            the step has other memory now, which `set_expected` or `replace_guards` was told.
        followed: guards of places whose tensors may be replaced by others of their kind.
        written: addresses that the step writes besides its outputs, sorted and apart; no array argument is there.
        keep: owner of step and table.
    """

    step_address: int
    table_address: int
    gate: Gate
    arguments: tuple[Argument, ...] = ()
    keyword_names: tuple[str, ...] = ()
    identities: tuple[tuple[int, int, bool], ...] = ()
    guards: tuple[Guard, ...] = ()
    rings: tuple[OutputRing, ...] = ()
    results: tuple[Output | Constant, ...] = (Constant(None),)
    returns_tuple: bool = False
    releases_gil: bool = False
    fallback: Callable[..., Any] | None = None
    error_address: int = 0
    on_error: Callable[[], Any] | None = None
    sizes: EntrySizes | None = None
    written: tuple[tuple[int, int], ...] = ()
    mend: Callable[[int], bool] | None = None
    followed: Collection[int] = ()
    keep: object = None
