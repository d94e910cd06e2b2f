"""The native entry point's view of memory: the words of its descriptor and the offsets into Python's objects.

Offsets are those of 64-bit CPython with the GIL and NumPy; `object_layout` checks them against live objects before the
native code is used.
"""

from __future__ import annotations

HEAD = (
    "busy",  # address of the words of the step's gate
    "failure",  # out: reason | index << 8
    "n_positional",
    "arguments",  # address of the argument records: positional ones, then keywords
    "n_keywords",
    "keywords",  # address of the keywords' names (interned str objects), in the order of the call
    "n_words",
    "words",  # address of (address, expected) pairs
    "n_dicts",
    "dicts",  # address of (dict, key, expected) triples
    "n_rings",
    "rings",  # address of the ring records
    "step",  # address of the step function
    "table",  # address of its pointer table
    "releases_gil",
    "n_results",
    "results",  # address of (ring + 1 or 0, constant object) pairs
    "makes_tuple",
    "fallback",  # callable for whatever the fast path refuses, or 0
    "slow",  # sentinel objects, returned when there is no fallback
    "need_output",
    "is_busy",
    "array_type",
    "int_type",
    "calls",  # out: calls that ran the step
    "error",  # address of a word that is not 0 when the step failed
    "raiser",  # callable that raises what it met
    "n_sizes",  # open sizes whose values Python must have accepted
    "sizes",  # address of the open sizes' values, which the arguments' checks fill in
    "accepted",  # address of the values that were accepted last
    "n_identities",
    "identities",  # address of (argument, argument, 1 if they must be one object, 0 if two) triples
    "n_ranges",
    "ranges",  # address of (first byte, byte after the last) pairs, sorted and apart: memory that the step writes
)

ARGUMENT = (
    "kind",
    "expected",  # object, or type of the tensor or number
    "offset",  # of the tensor's array slot; of an equal int, its value
    "dtype",
    "ndim",
    "shape",  # address of the extents; below 0: ~(2 * k) takes open size k, ~(2 * k + 1) must be equal to it
    "store",  # address that gets the data pointer, float or int; or 0
    "n_slots",
    "slots",  # address of (offset, expected object) pairs
    "flags",  # NumPy flags that must be set
    "held",  # scratch: the array of this call
    "least",  # of a number's 64 bits
    "most",
    "itemsize",
    "part",  # offset of a slot that may hold a part of the object to look behind; of its type where none is looked at
    "no_part",  # the object that the slot holds where there is none
    "behind",  # address of (offset of the part's slot, None, offset of a slot of what that holds, expected object)
)

RING = (
    "n_entries",
    "entries",
    "store",  # address that gets the data pointer
    "offset",  # of the tensor's array slot
    "n_slots",
    "slots",
    "attributes_offset",  # of the pointer to the tensor's __dict__, or 0
    "picked",  # scratch: the tensor of this call
)

RING_ENTRY = ("tensor", "array", "data", "flags", "attributes")  # the last: the tensor's __dict__, which must be empty

KINDS = ("object", "array", "tensor", "float", "equal_int", "int")
REASONS = ("none", "busy", "arity", "keyword", "argument", "word", "dict", "ring", "sizes")

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
