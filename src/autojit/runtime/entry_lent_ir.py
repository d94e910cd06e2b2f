"""The native checks of tensors that a step has lent: whether anybody holds their memory.

The memory is the step's own again when the array that readers got is held by the step's tensor alone, or besides by
one tensor (and its storage) that only a slot holds and that nobody has made more of.
"""

from __future__ import annotations

from autojit.codegen.module_text import ModuleText, Signature
from autojit.codegen.native_function import NativeFunction
from autojit.runtime.entry_checks_ir import COUNT_REFERENCE, NO, SLOTS_HOLD, is_held_once, type_of
from autojit.runtime.entry_records import BEFORE, DICT_SIZE_OFFSET, LentTensor, ReaderWords

LENT_HOLDS = Signature("lent_holds", "ptr record", "i1")
LEAVE_LENT = Signature("leave_lent", "ptr record")
DROP_REFERENCE = Signature("Py_DecRef", "ptr object")
_READER_IS_ALONE = Signature("reader_is_alone", "ptr held, ptr array, ptr words", "i1")


def add_lent(module: ModuleText) -> None:
    """The functions that `entry_ir` calls."""
    NativeFunction.define(module, _READER_IS_ALONE, _write_reader_is_alone, linkage="internal")
    NativeFunction.define(module, LENT_HOLDS, _write_lent_holds, linkage="internal")
    NativeFunction.define(module, LEAVE_LENT, _write_leave_lent, linkage="internal", attributes="")


def _write_lent_holds(f: NativeFunction) -> None:
    """Whether the slot holds what it must before a call, and nobody holds the memory."""
    (record,) = f.parameters
    store = f.get(record, LentTensor.store)
    with f.when(f.is_set(store, "ptr")):
        f.return_unless(f.test("eq", f.load("i64", store), f.get(record, LentTensor.data)), NO)
    own, words, before = (f.get(record, w) for w in (LentTensor.own, LentTensor.readers, LentTensor.before))
    none = f.get(words, ReaderWords.none)
    held = f.load("ptr", f.get(record, LentTensor.slot))
    f.return_when(f.is_zero(held, "ptr"), NO)
    array = f.load("ptr", f.at(own, f.get(record, LentTensor.lent_offset)))
    is_own, is_none = f.test("eq", held, own, "ptr"), f.test("eq", held, none, "ptr")
    takes_own, takes_none = (f.test("ne", before, BEFORE.index(other)) for other in ("none", "own"))
    is_unread = f.either(f.test("eq", array, none, "ptr"), is_held_once(f, array))
    with f.when(is_own):
        f.ret(f.both(takes_own, is_unread))
    with f.when(is_none):
        f.ret(f.both(takes_none, is_unread))
    f.return_unless(takes_own, NO)
    with f.when(is_unread):  # somebody has put another one there
        f.ret(f.test("eq", before, BEFORE.index("any")))
    f.ret(f.call(_READER_IS_ALONE, held, array, words))


def _write_reader_is_alone(f: NativeFunction) -> None:
    """Whether a slot's object is a reader's tensor, and nobody else holds it, its array, or what was made of them."""
    held, array, words = f.parameters
    f.return_unless(f.test("eq", type_of(f, held), f.get(words, ReaderWords.tensor_type)), NO)
    shown = f.load("ptr", f.at(held, f.get(words, ReaderWords.array_offset)))
    f.return_unless(f.both(f.test("eq", shown, array, "ptr"), is_held_once(f, held)), NO)
    n_slots, slots = f.get(words, ReaderWords.n_slots), f.get(words, ReaderWords.slots)
    f.return_unless(f.call(SLOTS_HOLD, held, n_slots, slots), NO)
    attributes = f.load("ptr", f.at(held, f.get(words, ReaderWords.attributes_offset)))
    f.return_when(f.is_zero(attributes, "ptr"), NO)
    f.return_unless(f.is_zero(f.load("i64", f.at(attributes, DICT_SIZE_OFFSET))), NO)
    references = f.load("i32", array)
    storage = f.load("ptr", f.at(held, f.get(words, ReaderWords.storage_offset)))
    with f.when(f.test("eq", storage, f.get(words, ReaderWords.none), "ptr")):
        f.ret(f.test("eq", references, 2, "i32"))
    f.return_unless(f.test("eq", type_of(f, storage), f.get(words, ReaderWords.storage_type)), NO)
    root = f.load("ptr", f.at(storage, f.get(words, ReaderWords.root_offset)))
    is_root = f.test("eq", root, array, "ptr")
    is_unseen = f.is_zero(f.load("i64", f.at(storage, f.get(words, ReaderWords.weak_offset))))
    is_alone = f.both(is_held_once(f, storage), f.test("eq", references, 3, "i32"))
    f.ret(f.both(f.both(is_root, is_unseen), is_alone))


def _write_leave_lent(f: NativeFunction) -> None:
    """Let the slot hold the step's tensor, unless it holds one that shows the same and has no storage."""
    (record,) = f.parameters
    own, words, slot = (f.get(record, word) for word in (LentTensor.own, LentTensor.readers, LentTensor.slot))
    held = f.load("ptr", slot)
    f.return_when(f.test("eq", held, own, "ptr"))
    none = f.get(words, ReaderWords.none)
    array = f.load("ptr", f.at(own, f.get(record, LentTensor.lent_offset)))
    kind = type_of(f, held)
    with f.when(f.test("eq", kind, f.get(words, ReaderWords.tensor_type))):
        shown = f.load("ptr", f.at(held, f.get(words, ReaderWords.array_offset)))
        storage = f.load("ptr", f.at(held, f.get(words, ReaderWords.storage_offset)))
        f.return_when(f.both(f.test("eq", shown, array, "ptr"), f.test("eq", storage, none, "ptr")))
    f.call(COUNT_REFERENCE, own)
    f.store("ptr", own, slot)
    f.call(DROP_REFERENCE, held)
    f.ret()
