"""The native entry point's view of memory: the records of its descriptor and the offsets into Python's objects.

Offsets are those of 64-bit CPython with the GIL and NumPy; `object_layout` checks them against live objects before the
native code is used.
"""

from __future__ import annotations

from autojit.codegen.records import Pointer, Record, Word, field


class Head(Record[int]):
    """A step as its entry point sees it."""

    busy: Pointer  # the words of the step's gate
    failure: Word = field(default=0)  # out: reason | index << 8
    n_positional: Word
    arguments: Pointer  # `ArgumentWords`: positional ones, then keywords
    n_keywords: Word
    keywords: Pointer  # the keywords' names (interned str objects), in the order of the call
    n_words: Word
    words: Pointer  # `GuardedWord`
    n_dicts: Word
    dicts: Pointer  # `GuardedItem`
    n_rings: Word
    rings: Pointer  # `Ring`
    step: Pointer  # the step function
    table: Pointer  # its pointer table
    releases_gil: Word
    n_results: Word
    results: Pointer  # `ResultItem`
    makes_tuple: Word
    fallback: Pointer  # callable for whatever the fast path refuses, or 0
    slow: Pointer  # sentinel objects, returned when there is no fallback
    need_output: Pointer
    is_busy: Pointer
    array_type: Word
    int_type: Word
    calls: Word = field(default=0)  # out: calls that ran the step
    error: Pointer  # a word that is not 0 when the step failed
    raiser: Pointer  # callable that raises what it met
    n_sizes: Word  # open sizes whose values Python must have accepted
    sizes: Pointer  # the open sizes' values, which the arguments' checks fill in
    accepted: Pointer  # rows of values that were accepted
    sets: Pointer  # `AcceptedSets`
    n_identities: Word
    identities: Pointer  # `Identity`
    n_ranges: Word
    ranges: Pointer  # `WrittenRange`, sorted and apart: memory that the step writes
    n_lent: Word
    lent: Pointer  # `LentTensor`
    n_others: Word = field(default=0)  # steps that are asked before the fallback
    others: Pointer = field(default=0)  # their callables, which answer with a sentinel when they refuse


class GateWords(Record[int]):
    """The words of `gate.Gate`, which is made long before native code and does without this module."""

    running: Word  # the thread of the native call, 0: none
    reserved: Word  # 1 while Python has the gate or waits for it


class AcceptedSets(Record[int]):
    """Values of the open sizes for which rings have tensors."""

    n_rows: Word
    present: Word  # out: the row of this call


class ArgumentWords(Record[int]):
    """What one argument must be; the fields without a use for its kind are 0."""

    kind: Word  # index into `KINDS`
    expected: Word = field(default=0)  # object, or type of the tensor or number
    offset: Word = field(default=0)  # of the tensor's array slot; of an equal int, its value
    dtype: Word = field(default=0)
    ndim: Word = field(default=0)
    shape: Pointer = field(default=0)  # the extents; below 0: ~(2 * k) takes open size k, ~(2 * k + 1) must equal it
    store: Pointer = field(default=0)  # where the data pointer, float or int is put; or 0
    n_slots: Word = field(default=0)
    slots: Pointer = field(default=0)  # `Slot`
    flags: Word = field(default=0)  # NumPy flags that must be set
    held: Pointer = field(default=0)  # scratch: the array of this call
    least: Word = field(default=0)  # of a number's 64 bits
    most: Word = field(default=0)
    itemsize: Word = field(default=0)
    part: Word = field(default=0)  # offset of a slot that may hold a part to look behind; of the type where none is
    no_part: Word = field(default=0)  # the object that the slot holds where there is none
    behind: Pointer = field(default=0)  # `BehindWords`
    wrapper: Word = field(default=0)  # type of what holds the array where that is on another device, or 0
    layout: Word = field(default=0)  # offset of its slot for the array
    place: Word = field(default=0)  # offset of its slot for the memory that the array must be in
    space: Word = field(default=0)  # that memory


class BehindWords(Record[int]):
    """What must hold of a part of an argument (a view): it has no owner (base), or one whose slot holds an object."""

    owner_offset: Word
    no_owner: Pointer
    slot_offset: Word
    expected: Word


class Slot(Record[int]):
    """A slot of an object and what it must hold."""

    offset: Word
    expected: Word


class Identity(Record[int]):
    """Two arguments that must be one object, or must not."""

    one: Word
    other: Word
    is_one: Word


class GuardedWord(Record[int]):
    """A word of memory and what it must be."""

    address: Pointer
    expected: Word


class GuardedItem(Record[int]):
    """A dictionary's item and the object that it must be; 0 for a key that is missing."""

    mapping: Pointer
    key: Pointer
    expected: Pointer


class LentTensor(Record[int]):
    """A tensor of the step in a slot of another one, whose memory readers may hold."""

    slot: Pointer
    own: Pointer
    lent_offset: Word  # of the slot of ``own`` for the array that readers got
    before: Word  # index into `BEFORE`
    store: Pointer  # an entry of the pointer table, or 0
    data: Word  # and what it must be
    readers: Pointer  # `ReaderWords`


class ReaderWords(Record[int]):
    """How readers hold a lent tensor's memory."""

    none: Pointer
    tensor_type: Word
    array_offset: Word
    storage_offset: Word
    storage_type: Word
    root_offset: Word
    weak_offset: Word  # of a storage's weak references
    n_slots: Word
    slots: Pointer  # `Slot`
    attributes_offset: Word


class WrittenRange(Record[int]):
    """Memory that the step writes: its first byte, and the byte after the last."""

    begin: Word
    end: Word


class ResultItem(Record[int]):
    """A result: the tensor that a ring has picked, or an object."""

    ring: Word  # its number + 1, or 0
    constant: Pointer


class Ring(Record[int]):
    """Tensors made in advance for one output."""

    n_entries: Word = field(default=0)
    entries: Pointer  # `RingEntry`
    stride: Word  # bytes from the entries for one row of accepted sizes to those for the next
    store: Pointer  # where the data pointer is put
    offset: Word  # of the tensor's array slot
    n_slots: Word
    slots: Pointer  # `Slot`
    attributes_offset: Word  # of the pointer to the tensor's __dict__, or 0
    picked: Pointer = field(default=0)  # scratch: the tensor of this call


class RingEntry(Record[int]):
    """A tensor of a ring, as it must be found."""

    tensor: Pointer
    content: Pointer  # of its array slot: the array, or what holds the array where that is on another device
    array: Pointer
    data: Word
    flags: Word
    attributes: Pointer  # the tensor's __dict__, which must be empty


KINDS = ("object", "array", "tensor", "float", "equal_int", "int")
REASONS = ("none", "busy", "arity", "keyword", "argument", "word", "dict", "ring", "sizes", "lent")
BEFORE = ("own", "none", "any")

TYPE_OFFSET = 8
TUPLE_SIZE_OFFSET = 16
TUPLE_ITEMS_OFFSET = tuple.__basicsize__  # from Python 3.14 on a tuple keeps its hash in front of its items
CAPSULE_POINTER_OFFSET = 16
FLOAT_VALUE_OFFSET = 16
DICT_SIZE_OFFSET = 16
ARRAY_DATA_OFFSET = 16
ARRAY_NDIM_OFFSET = 24
ARRAY_SHAPE_OFFSET = 32
ARRAY_DTYPE_OFFSET = 56
ARRAY_FLAGS_OFFSET = 64
