"""What an instance of an exported step is made of: words that are copied, and which of them are addresses.

An *instance* is one block of memory: words (plans, tables), then state, then temporaries. The library holds the words
as they are at the address 0, and two lists: places of words to which the address of the instance is added, and of words
to which that of the library is. So an instance is made by one copy and one walk over the lists, at any address, and no
address of the exporting process is in a library.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

WORD_BYTES = 8
ALIGNMENT_BYTES = 64
PAGE_BYTES = 4096
_WORD = 0xFFFFFFFFFFFFFFFF

Base = Literal["words", "state", "arena", "library"]


class Address(int):
    """An address whose base is not known yet: bytes from there."""

    base: Base

    def __new__(cls, offset: int, base: Base) -> Address:
        made = super().__new__(cls, offset)
        made.base = base
        return made

    def __add__(self, other: int) -> Address:
        return Address(int(self) + int(other), self.base)

    __radd__ = __add__

    def __and__(self, mask: int) -> int:
        return self if mask == _WORD else int(self) & mask

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and int(self) == int(other) and self.base == other.base

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((int(self), self.base))


class Block:
    """Some words of an image; numbers and addresses are assigned to them as to an array."""

    def __init__(self, image: InstanceImage, first: int, count: int) -> None:
        self._image = image
        self._first = first
        self._count = count

    def __setitem__(self, key: int | slice, value: int | Iterable[int]) -> None:
        places = range(self._count)[key]
        if isinstance(places, int):
            assert isinstance(value, int)
            self._image.put(self._first + places, value)
            return
        values = [value] * len(places) if isinstance(value, int) else list(value)
        for place, word in zip(places, values, strict=True):
            self._image.put(self._first + place, word)


class Finished(NamedTuple):
    """An image with all its offsets.

    Attributes:
        words: the words at the beginning of an instance.
        of_instance, of_library: bytes from there to the words to which an address is added.
        state: where state begins.
        arena: where temporaries do.
        size_bytes: of an instance.
    """

    words: bytes
    of_instance: bytes
    of_library: bytes
    state: int
    arena: int
    size_bytes: int


class InstanceImage:
    """Collects the words, and how much state and how many temporaries there are."""

    def __init__(self) -> None:
        self._words: list[int] = []
        self._addresses: dict[int, Address] = {}
        self.state_bytes = 0
        self.arena_bytes = 0

    def zeros(self, count: int) -> tuple[Block, Address]:
        """New words, and where they are; a multiple of a cache line from the beginning."""
        self._words += [0] * (-len(self._words) % (ALIGNMENT_BYTES // WORD_BYTES))
        first = len(self._words)
        self._words += [0] * count
        return Block(self, first, count), Address(WORD_BYTES * first, "words")

    def words(self, values: Iterable[int]) -> tuple[Block, Address]:
        """New words with these values."""
        listed = list(values)
        block, address = self.zeros(len(listed))
        block[:] = listed
        return block, address

    def put(self, place: int, value: int) -> None:
        """Write a word."""
        self._addresses.pop(place, None)
        if isinstance(value, Address):
            self._addresses[place] = value
        self._words[place] = int(value) & _WORD

    def put_at(self, address: int, value: int) -> None:
        """Write the word at an address in the image."""
        assert isinstance(address, Address)
        assert address.base == "words"
        self.put(int(address) // WORD_BYTES, value)

    def state(self, size_bytes: int) -> Address:
        """Room for a tensor of the state."""
        return self._room("state_bytes", size_bytes, "state")

    def arena(self, size_bytes: int) -> Address:
        """Room for temporaries."""
        return self._room("arena_bytes", size_bytes, "arena")

    def _room(self, counter: str, size_bytes: int, base: Base) -> Address:
        start: int = getattr(self, counter)
        setattr(self, counter, start + -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
        return Address(start, base)

    def finish(self) -> Finished:
        """All offsets are known now."""
        state = _rounded(WORD_BYTES * len(self._words), PAGE_BYTES)
        arena = _rounded(state + self.state_bytes, PAGE_BYTES)
        starts = {"words": 0, "state": state, "arena": arena, "library": 0}
        words = np.array(self._words, np.uint64)
        lists: dict[bool, list[int]] = {False: [], True: []}
        for place, address in sorted(self._addresses.items()):
            words[place] = int(address) + starts[address.base]
            lists[address.base == "library"].append(WORD_BYTES * place)
        of_instance, of_library = (np.array(lists[of], np.int64).tobytes() for of in (False, True))
        size_bytes = _rounded(arena + self.arena_bytes, PAGE_BYTES)
        return Finished(words.tobytes(), of_instance, of_library, state, arena, size_bytes)


def _rounded(value: int, step: int) -> int:
    return -(-value // step) * step
