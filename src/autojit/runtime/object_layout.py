"""Where fields are inside CPython's and NumPy's objects, found out by looking at live ones.

The native entry point reads objects directly. It is used only when every offset it relies on is confirmed here, which
excludes other Pythons, free-threaded builds and future layouts without a list of versions.
"""

from __future__ import annotations

import ctypes
import operator
import struct
import sys
import sysconfig
from functools import cache, lru_cache
from types import CellType, MemberDescriptorType
from typing import Any

import numpy as np

from autojit.core.errors import ArgumentError
from autojit.runtime import entry_records as layout

TYPE_OFFSET = layout.TYPE_OFFSET
CELL_CONTENT_OFFSET = 16


def word_at(address: int) -> int:
    """The unsigned 64-bit word at an address."""
    return ctypes.c_uint64.from_address(address).value


@cache
def layout_is_known() -> bool:
    """Whether this interpreter's objects are laid out as `entry_records` states."""
    if sys.implementation.name != "cpython" or struct.calcsize("P") != 8 or sys.byteorder != "little":
        return False
    if _is_free_threaded():
        return False
    return _containers_fit() and _array_fits() and _counts_fit()


def _is_free_threaded() -> bool:
    """Whether Python was built to run without its lock; its flags tell without reading how it was configured."""
    flags = getattr(sys, "abiflags", None)
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED")) if flags is None else "t" in flags


def slot_offset(cls: type, name: str) -> int:
    """Byte offset of a ``__slots__`` member (or ``__weakref__``, negative in some versions) in the instances of `cls`.

    Found by storing a fresh object in the slot of a probe instance and looking for its address.

    Raises:
        ArgumentError: the class has no such slot.
    """
    if name == "__weakref__":
        offset: int = cls.__weakrefoffset__
    else:
        offset = _member_offset(cls, name)
    if offset == 0:
        raise ArgumentError("a class has no such slot", facts={"class": cls.__name__, "slot": name})
    return offset


@lru_cache(maxsize=1024)
def _member_offset(cls: type, name: str) -> int:
    member = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    if not isinstance(member, MemberDescriptorType):
        return 0
    probe: object = object.__new__(cls)
    content = object()
    member.__set__(probe, content)
    words = range(TYPE_OFFSET + 8, cls.__basicsize__, 8)
    return next((offset for offset in words if word_at(id(probe) + offset) == id(content)), 0)


@lru_cache(maxsize=1024)
def attributes_offset(cls: type) -> int:
    """Offset (negative in some versions) of the pointer to an instance's ``__dict__`` once that was asked for.

    0 when instances have none.
    """
    probe: object = object.__new__(cls)
    if not hasattr(probe, "__dict__"):
        return 0
    attributes = probe.__dict__  # makes the dictionary, which otherwise may not exist yet
    words = (offset for offset in range(-32, cls.__basicsize__, 8) if not 0 <= offset <= TYPE_OFFSET)
    found = next((offset for offset in words if word_at(id(probe) + offset) == id(attributes)), None)
    if found is None:
        raise ArgumentError("the attributes of a class's instances cannot be found", facts={"class": cls.__name__})
    return found


def cell_content_address(cell: Any) -> int:
    """Address of the pointer to a closure cell's content."""
    return id(cell) + CELL_CONTENT_OFFSET


@cache
def _type_version_offset() -> int:
    """Offset of a class's version tag: the word that an assignment to the class changes, and nothing else; 0: unknown.

    Found by assigning to a probe class and its base several times. Each time the tag is taken away, and the next
    look-up through the class gives it another.
    """
    if not layout_is_known():
        return 0
    base = type("Base", (), {})
    probe = type("Probe", (base,), {})
    candidates = set(range(_TYPE_WORDS))
    seen: list[list[int]] = []
    for k in range(4):
        assigned: Any = base if k % 2 else probe
        assigned.mark = k
        candidates &= {n for n in range(_TYPE_WORDS) if word_at(id(probe) + 8 * n) == 0}
        operator.attrgetter("mark")(probe)
        seen.append([word_at(id(probe) + 8 * n) for n in range(_TYPE_WORDS)])
    found = [n for n in candidates if len({words[n] for words in seen}) == 4]
    return 8 * found[0] if len(found) == 1 else 0


_TYPE_WORDS = 56  # of the type object, at least 8 bytes each


def type_version(cls: type) -> Any:
    """A class's version tag as an int64 array of one element over the class's own memory; None where there is none.

    Keep the class while the array is used.
    """
    offset = _type_version_offset()
    if not offset:
        return None
    getattr(cls, "__init__", None)  # a look-up gives a class without a tag one
    found = words_at(id(cls) + offset, 1)
    return found if found[0] else None


def words_at(address: int, count: int) -> Any:
    """Words of somebody's memory as an int64 array, which does not keep the owner alive."""
    return np.asarray((ctypes.c_int64 * count).from_address(address))


@cache
def _code_offset() -> int:
    """Offset of a function's code, defaults and keyword defaults, which are neighbours; 0: they are not."""
    if not layout_is_known():
        return 0

    def probe(x: int = 12345, *, y: int = 54321) -> None: ...

    held = [id(probe.__code__), id(probe.__defaults__), id(probe.__kwdefaults__)]
    places = range(16, 16 * 8, 8)
    return next((at for at in places if [word_at(id(probe) + at + 8 * k) for k in range(3)] == held), 0)


def function_words(function: Any) -> Any:
    """The addresses of a function's code, defaults and keyword defaults (0: none), as ``words_at``; None: unknown."""
    offset = _code_offset()
    return words_at(id(function) + offset, 3) if offset else None


def _containers_fit() -> bool:
    pair = (object(), object())
    number = 1.2345678901234567
    scalar, whole = np.float64(number), np.int64(1234567)
    name = b"probe"
    capsule = new_capsule(id(name))
    content = object()
    cell = CellType(content)
    return (
        word_at(id({1: 1, 2: 2}) + layout.DICT_SIZE_OFFSET) == 2
        and word_at(id(pair) + layout.TUPLE_SIZE_OFFSET) == 2
        and word_at(id(pair) + layout.TUPLE_ITEMS_OFFSET) == id(pair[0])
        and word_at(id(pair) + layout.TUPLE_ITEMS_OFFSET + 8) == id(pair[1])
        and ctypes.c_double.from_address(id(number) + layout.FLOAT_VALUE_OFFSET).value == number
        and ctypes.c_double.from_address(id(scalar) + layout.FLOAT_VALUE_OFFSET).value == number
        and word_at(id(whole) + layout.FLOAT_VALUE_OFFSET) == 1234567
        and word_at(id(capsule) + layout.CAPSULE_POINTER_OFFSET) == id(name)
        and word_at(id(number) + TYPE_OFFSET) == id(float)
        and word_at(cell_content_address(cell)) == id(content)
    )


def _array_fits() -> bool:
    probe = np.arange(12, dtype=np.int16).reshape(3, 4)
    turned = probe.T
    at = id(probe)
    shape = word_at(at + layout.ARRAY_SHAPE_OFFSET)
    return (
        word_at(at + TYPE_OFFSET) == id(np.ndarray)
        and word_at(at + layout.ARRAY_DATA_OFFSET) == probe.__array_interface__["data"][0]
        and ctypes.c_int32.from_address(at + layout.ARRAY_NDIM_OFFSET).value == 2
        and (word_at(shape), word_at(shape + 8)) == (3, 4)
        and word_at(at + layout.ARRAY_DTYPE_OFFSET) == id(probe.dtype)
        and data_and_flags(probe)[1] == probe.flags.num
        and data_and_flags(turned)[1] == turned.flags.num != probe.flags.num
    )


def _counts_fit() -> bool:
    """The first 32 bits count the references: one for a list's only holder, one more for every other holder."""
    held = [object()]
    counted = ctypes.c_uint32.from_address(id(held[0]))
    is_one = counted.value == 1
    others = held * 4
    return is_one and counted.value == 1 + len(others)


def data_and_flags(array: Any) -> tuple[int, int]:
    """The address of an array's first element and NumPy's flag word, by one look."""
    words = _array_words(id(array))[:]
    return words[layout.ARRAY_DATA_OFFSET // 8], words[layout.ARRAY_FLAGS_OFFSET // 8] & 0xFFFFFFFF


_array_words = (ctypes.c_uint64 * (layout.ARRAY_FLAGS_OFFSET // 8 + 1)).from_address


def new_capsule(address: int) -> object:
    """A PyCapsule of an address."""
    create = ctypes.pythonapi.PyCapsule_New
    create.restype = ctypes.py_object
    create.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    capsule: object = create(address, None, None)
    return capsule
