"""The native checks of one call: arguments, slots, output rings.

Every function answers whether its record holds, and stores what the step needs (data pointers, numbers, picked tensors)
on the way. Most are inlined into `entry_ir`'s one function.
"""

from __future__ import annotations

from autojit.codegen.function_text import State
from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.native_function import Junction, NativeFunction
from autojit.core.size_expressions import LEAST
from autojit.runtime.entry_records import (
    ARRAY_DATA_OFFSET,
    ARRAY_DTYPE_OFFSET,
    ARRAY_FLAGS_OFFSET,
    ARRAY_NDIM_OFFSET,
    ARRAY_SHAPE_OFFSET,
    DICT_SIZE_OFFSET,
    FLOAT_VALUE_OFFSET,
    KINDS,
    TYPE_OFFSET,
    AcceptedSets,
    ArgumentWords,
    BehindWords,
    Head,
    ResultItem,
    Ring,
    RingEntry,
    Slot,
    WrittenRange,
)

ARGUMENT_HOLDS = Signature("argument_holds", "ptr object, ptr record, ptr head", "i1")
RING_PICKS = Signature("ring_picks", "ptr ring, ptr sets", "i1")
SIZES_ACCEPTED = Signature("sizes_accepted", "ptr head", "i1")
RESULT_ITEM = Signature("result_item", "ptr head, i64 index", "ptr")
EACH_HELD = Signature("each_held", "ptr records, i64 count, ptr change")
COUNT_REFERENCE = Signature("Py_IncRef", "ptr object")
SLOTS_HOLD = Signature("slots_hold", "ptr object, i64 count, ptr slots", "i1")
_BEHIND_HOLDS = Signature("behind_holds", "ptr part, ptr words", "i1")
_IS_APART = Signature("lies_apart", "ptr array, ptr record, ptr head", "i1")
_ARRAY_HOLDS = Signature("array_holds", "ptr array, ptr record, ptr head", "i1")
_INT_VALUE = Signature("int_value", "ptr object, ptr value", "i1")
_INT_OF = Signature("PyLong_AsLongLongAndOverflow", "ptr object, ptr overflow", "i64")

INLINED = "alwaysinline nounwind"
YES, NO = "true", "false"


def add_checks(module: ModuleText) -> None:
    """The functions that `entry_ir` calls."""
    NativeFunction.define(module, SLOTS_HOLD, _write_slots_hold, linkage="internal", attributes=INLINED)
    NativeFunction.define(module, _BEHIND_HOLDS, _write_behind_holds, linkage="internal")
    NativeFunction.define(module, _IS_APART, _write_lies_apart, linkage="internal")
    NativeFunction.define(module, _ARRAY_HOLDS, _write_array_holds, linkage="internal", attributes=INLINED)
    NativeFunction.define(module, _INT_VALUE, _write_int_value, linkage="internal")
    NativeFunction.define(module, ARGUMENT_HOLDS, _write_argument_holds, linkage="internal", attributes=INLINED)
    NativeFunction.define(module, SIZES_ACCEPTED, _write_sizes_accepted, linkage="internal")
    NativeFunction.define(module, RING_PICKS, _write_ring_picks, linkage="internal", attributes=INLINED)
    NativeFunction.define(module, RESULT_ITEM, _write_result_item, linkage="internal", attributes=INLINED)
    NativeFunction.define(module, EACH_HELD, _write_each_held, linkage="internal")


def _write_slots_hold(f: NativeFunction) -> None:
    """Whether slots of an object hold what they must."""
    holder, count, slots = f.parameters
    with f.loop(0, count) as k:
        slot = f.item(Slot, slots, k)
        value = f.load("i64", f.at(holder, f.get(slot, Slot.offset)))
        f.return_unless(f.test("eq", value, f.get(slot, Slot.expected)), NO)
    f.ret(YES)


def _write_behind_holds(f: NativeFunction) -> None:
    """Whether a part of an object (a view) has no owner (a base), or one whose slot holds what the words say."""
    part, words = f.parameters
    f.return_when(f.is_zero(part, "ptr"), NO)
    owner = f.load("ptr", f.at(part, f.get(words, BehindWords.owner_offset)))
    f.return_when(f.test("eq", owner, f.get(words, BehindWords.no_owner), "ptr"), YES)
    f.return_when(f.is_zero(owner, "ptr"), NO)
    value = f.load("i64", f.at(owner, f.get(words, BehindWords.slot_offset)))
    f.ret(f.test("eq", value, f.get(words, BehindWords.expected)))


def _write_lies_apart(f: NativeFunction) -> None:
    """Whether an array's elements, in row-major order, are outside of everything that the step writes.

    The last range that begins before they end must end before they begin.
    """
    array, record, head = f.parameters
    ranges = f.get(head, Head.ranges)
    size = _size_bytes(f, array, record)
    low = f.load("i64", f.at(array, ARRAY_DATA_OFFSET))
    high = f.add(low, size)
    f.return_when(f.is_zero(size), YES)

    def halve(state: State) -> State:
        first, last = state
        middle = f.binary("lshr", f.add(first, last), 1)
        begins_before = f.test("ult", f.get(f.item(WrittenRange, ranges, middle), WrittenRange.begin), high)
        return [f.choose(begins_before, f.add(middle, 1), first), f.choose(begins_before, last, middle)]

    count = f.get(head, Head.n_ranges)
    first, _ = f.repeat_while(["i64", "i64"], [0, count], lambda state: f.test("slt", *state), halve)
    f.return_when(f.is_zero(first), YES)
    before = f.item(WrittenRange, ranges, f.sub(first, 1))
    f.ret(f.test("ule", f.get(before, WrittenRange.end), low))


def _size_bytes(f: NativeFunction, array: str, record: str) -> str:
    ndim, itemsize = f.get(record, ArgumentWords.ndim), f.get(record, ArgumentWords.itemsize)
    shape = f.load("ptr", f.at(array, ARRAY_SHAPE_OFFSET))

    def turn(state: State) -> State:
        axis, size = state
        return [f.add(axis, 1), f.mul(size, f.load("i64", f.element(shape, "i64", axis)))]

    _, size = f.repeat_while(["i64", "i64"], [0, itemsize], lambda state: f.test("slt", state[0], ndim), turn)
    return size


def _write_array_holds(f: NativeFunction) -> None:
    """Whether an array is as the record says; stores its data pointer."""
    array, record, head = f.parameters
    f.return_unless(f.test("eq", type_of(f, array), f.get(head, Head.array_type)), NO)
    is_dtype = f.test("eq", f.load("i64", f.at(array, ARRAY_DTYPE_OFFSET)), f.get(record, ArgumentWords.dtype))
    ndim = f.convert("sext", f.load("i32", f.at(array, ARRAY_NDIM_OFFSET)), "i32")
    is_ndim = f.test("eq", ndim, f.get(record, ArgumentWords.ndim))
    flags, wanted = _flags_of(f, array), f.get(record, ArgumentWords.flags)
    has_flags = f.test("eq", f.binary("and", flags, wanted), wanted)
    f.return_unless(f.both(f.both(is_dtype, is_ndim), has_flags), NO)
    shape = f.load("ptr", f.at(array, ARRAY_SHAPE_OFFSET))
    extents, sizes = f.get(record, ArgumentWords.shape), f.get(head, Head.sizes)
    with f.loop(0, ndim, stem="axis") as axis:
        _check_extent(
            f, f.load("i64", f.element(shape, "i64", axis)), f.load("i64", f.element(extents, "i64", axis)), sizes
        )
    with f.when(f.is_set(f.get(head, Head.n_ranges))):
        f.return_unless(f.call(_IS_APART, array, record, head), NO)
    f.put(record, ArgumentWords.held, array)
    store = f.get(record, ArgumentWords.store)
    with f.when(f.is_set(store, "ptr")):
        f.store("i64", f.load("i64", f.at(array, ARRAY_DATA_OFFSET)), store)
    f.ret(YES)


def _check_extent(f: NativeFunction, have: str, want: str, sizes: str) -> None:
    """Return no unless an extent is the one wanted, or a fitting value of an open size; see `ArgumentWords.shape`."""
    fits = f.junction(stem="fits")
    with f.when(f.test("sge", want, 0)):
        f.return_unless(f.test("eq", have, want), NO)
        f.go(fits)
    code = f.binary("xor", want, -1)
    size = f.element(sizes, "i64", f.binary("lshr", code, 1))
    is_known = f.convert("trunc", code, "i64", "i1")
    with f.when(is_known):
        f.return_unless(f.test("eq", have, f.load("i64", size)), NO)
        f.go(fits)
    f.store("i64", have, size)
    f.return_unless(f.test("sge", have, LEAST), NO)
    f.go(fits)
    f.begin(fits)


def type_of(f: NativeFunction, value: str) -> str:
    """An object's class."""
    return f.load("i64", f.at(value, TYPE_OFFSET))


def _flags_of(f: NativeFunction, array: str) -> str:
    return f.convert("zext", f.load("i32", f.at(array, ARRAY_FLAGS_OFFSET)), "i32")


def _write_int_value(f: NativeFunction) -> None:
    """The exact int's value; no when it does not fit 64 bits."""
    value, to = f.parameters
    overflow = f.local("i32", 4)
    f.store("i64", f.call(_INT_OF, value, overflow), to)
    f.ret(f.is_zero(f.load("i32", overflow), "i32"))


def _write_argument_holds(f: NativeFunction) -> None:
    """Whether an argument is as its record says."""
    argument, record, head = f.parameters
    number = f.local("i64", 8)
    expected = f.get(record, ArgumentWords.expected)
    kind = type_of(f, argument)
    is_expected = f.test("eq", kind, expected)
    in_range = f.junction(stem="in_range")
    with f.switch(f.get(record, ArgumentWords.kind)) as case:
        with case(KINDS.index("object")):
            f.ret(f.test("eq", f.convert("ptrtoint", argument, "ptr"), expected))
        with case(KINDS.index("array")):
            f.ret(f.call(_ARRAY_HOLDS, argument, record, head))
        with case(KINDS.index("tensor")):
            f.return_unless(is_expected, NO)
            _check_tensor(f)
        with case(KINDS.index("float")):
            f.return_unless(is_expected, NO)
            f.store("i64", f.load("i64", f.at(argument, FLOAT_VALUE_OFFSET)), number)
            f.go(in_range)
        with case(KINDS.index("equal_int")):
            f.return_unless(f.test("eq", kind, f.get(head, Head.int_type)), NO)
            fits = f.call(_INT_VALUE, argument, number)
            is_equal = f.test("eq", f.load("i64", number), f.get(record, ArgumentWords.offset))
            f.ret(f.both(fits, is_equal))
        with case(KINDS.index("int")):
            f.return_unless(is_expected, NO)
            _take_int(f, kind, number, in_range)
    f.ret(NO)
    f.begin(in_range)
    value = f.load("i64", number)
    is_high = f.test("sge", value, f.get(record, ArgumentWords.least))
    is_low = f.test("sle", value, f.get(record, ArgumentWords.most))
    f.return_unless(f.both(is_high, is_low), NO)
    f.store("i64", value, f.get(record, ArgumentWords.store))
    f.ret(YES)


def _check_tensor(f: NativeFunction) -> None:
    """Return whether a tensor's slots, the part that it looks at, and its array are as the record says."""
    tensor, record, head = f.parameters
    n_slots, slots = f.get(record, ArgumentWords.n_slots), f.get(record, ArgumentWords.slots)
    f.return_unless(f.call(SLOTS_HOLD, tensor, n_slots, slots), NO)
    part = f.load("i64", f.at(tensor, f.get(record, ArgumentWords.part)))
    with f.when(f.test("ne", part, f.get(record, ArgumentWords.no_part))):
        behind = f.get(record, ArgumentWords.behind)
        f.return_unless(f.call(_BEHIND_HOLDS, f.convert("inttoptr", part, "i64", "ptr"), behind), NO)
    content = f.load("ptr", f.at(tensor, f.get(record, ArgumentWords.offset)))
    f.return_when(f.is_zero(content, "ptr"), NO)
    wrapper = f.get(record, ArgumentWords.wrapper)
    with f.when(f.is_set(wrapper)):
        f.return_unless(f.test("eq", type_of(f, content), wrapper), NO)
        space = f.load("i64", f.at(content, f.get(record, ArgumentWords.place)))
        f.return_unless(f.test("eq", space, f.get(record, ArgumentWords.space)), NO)
        layout = f.load("ptr", f.at(content, f.get(record, ArgumentWords.layout)))
        f.ret(f.call(_ARRAY_HOLDS, layout, record, head))
    f.ret(f.call(_ARRAY_HOLDS, content, record, head))


def _take_int(f: NativeFunction, kind: str, number: str, in_range: Junction) -> None:
    """Put the value of an int of Python or of NumPy where its range is looked at."""
    argument, _, head = f.parameters
    with f.when(f.test("eq", kind, f.get(head, Head.int_type))):
        f.return_unless(f.call(_INT_VALUE, argument, number), NO)
        f.go(in_range)
    f.store("i64", f.load("i64", f.at(argument, FLOAT_VALUE_OFFSET)), number)
    f.go(in_range)


def _write_sizes_accepted(f: NativeFunction) -> None:
    """Whether the open sizes have values that Python has accepted; says in which row they are."""
    (head,) = f.parameters
    count = f.get(head, Head.n_sizes)
    f.return_when(f.is_zero(count), YES)
    values, rows, sets = f.get(head, Head.sizes), f.get(head, Head.accepted), f.get(head, Head.sets)
    with f.loop(0, f.get(sets, AcceptedSets.n_rows), stem="row") as k:
        other = f.junction(stem="other")
        row = f.element(rows, "i64", f.mul(k, count))
        with f.loop(0, count, stem="size") as size:
            have, want = (f.load("i64", f.element(words, "i64", size)) for words in (values, row))
            f.go_unless(f.test("eq", have, want), other)
        f.put(sets, AcceptedSets.present, k)
        f.ret(YES)
        f.begin(other)
    f.ret(NO)


def _write_ring_picks(f: NativeFunction) -> None:
    """Pick a tensor that only its ring owns; no when there is none."""
    ring, sets = f.parameters
    count, entries, offset = (f.get(ring, word) for word in (Ring.n_entries, Ring.entries, Ring.offset))
    entries = f.at(entries, f.mul(f.get(sets, AcceptedSets.present), f.get(ring, Ring.stride)))
    with f.loop(0, count) as k:
        taken = f.junction(stem="taken")
        entry = f.item(RingEntry, entries, k)
        f.put(ring, Ring.picked, _free_tensor(f, ring, entry, offset, taken))
        f.store("i64", f.get(entry, RingEntry.data), f.get(ring, Ring.store))
        f.ret(YES)
        f.begin(taken)
    f.ret(NO)


def _free_tensor(f: NativeFunction, ring: str, entry: str, offset: str, taken: Junction) -> str:
    """The tensor of an entry; on to ``taken`` if others hold it or its array, or if it was changed."""
    tensor, array = f.get(entry, RingEntry.tensor), f.get(entry, RingEntry.array)
    f.go_unless(is_held_once(f, tensor), taken)
    content = f.load("ptr", f.at(tensor, offset))
    f.go_unless(f.test("eq", content, f.get(entry, RingEntry.content), "ptr"), taken)
    has_flags = f.test("eq", _flags_of(f, array), f.get(entry, RingEntry.flags))
    is_alone = f.both(is_held_once(f, content), is_held_once(f, array))  # one array, or one and what holds it
    f.go_unless(f.both(is_alone, has_flags), taken)
    n_slots, slots = f.get(ring, Ring.n_slots), f.get(ring, Ring.slots)
    f.go_unless(f.call(SLOTS_HOLD, tensor, n_slots, slots), taken)
    attributes_offset = f.get(ring, Ring.attributes_offset)
    with f.when(f.is_set(attributes_offset)):
        attributes = f.load("ptr", f.at(tensor, attributes_offset))
        f.go_unless(f.test("eq", attributes, f.get(entry, RingEntry.attributes), "ptr"), taken)
        f.go_unless(f.is_zero(f.load("i64", f.at(attributes, DICT_SIZE_OFFSET))), taken)
    return tensor


def is_held_once(f: NativeFunction, value: str) -> str:
    """Whether there is one reference to an object."""
    return f.test("eq", f.load("i32", value), 1, "i32")


def _write_result_item(f: NativeFunction) -> None:
    """A new reference to a result item: a constant, or the tensor its ring picked."""
    head, index = f.parameters
    item = f.item(ResultItem, f.get(head, Head.results), index)
    ring = f.get(item, ResultItem.ring)
    with f.when(f.is_zero(ring)):
        constant = f.get(item, ResultItem.constant)
    with f.otherwise():
        rings = f.get(head, Head.rings)
        tensor = f.get(f.item(Ring, rings, f.sub(ring, 1)), Ring.picked)
    result = f.merge("ptr", constant, tensor)
    f.call(COUNT_REFERENCE, result)
    f.ret(result)


def _write_each_held(f: NativeFunction) -> None:
    """Keep this call's argument arrays alive while other Python threads run (`Py_IncRef`), or let go (`Py_DecRef`)."""
    records, count, change = f.parameters
    with f.loop(0, count) as k:
        record = f.item(ArgumentWords, records, k)
        kind = f.get(record, ArgumentWords.kind)
        with f.when(f.test("ult", f.sub(kind, KINDS.index("array")), 2)):  # an array or a tensor
            f.call(COUNT_REFERENCE, f.get(record, ArgumentWords.held), by=change)
