"""What accesses of a kernel to global memory are, byte by byte: of sixteen at once, or why not.

A byte counts once for each warp and instruction that asks for it. Bytes that are not accessed in sixteens are, the
first that holds,

==========  ===========================================================================================================
``again``   in an access of sixteen of the same block as well: the first cache has them
``single``  in no sixteen that the lanes of the warp ask for together: elements here and there, strides, one for all
``shifted`` in sixteens that begin anywhere: of the places where this instruction's neighbours begin some are multiples
            of sixteen and some are not, so that no lane can ask for four elements wherever it is
``thin``    elements narrower than those beside them: a lane takes as many as it takes of the others in an access of 16
``narrow``  none of these: lanes side by side that could have asked for sixteen
==========  ===========================================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WIDEST = 16
"""Bytes: the widest access of a thread."""
SECTOR_BYTES = 32
"""What a cache fetches at least (CUDA C++ Best Practices Guide, coalesced access)."""

CLASSES = ("wide", "again", "single", "shifted", "thin", "narrow")

Numbers = NDArray[np.uint64]
Range = tuple[int, int, int]
"""A buffer: where it begins and ends, and the bytes of its elements."""

_WARP_SHIFT = np.uint64(48)  # addresses have fewer bits
_PLACE = np.uint64(WIDEST - 1)


@dataclass(frozen=True)
class Asked:
    """One instruction at one time.

    Args:
        instruction: where it is in the text.
        size: bytes of each lane.
        blocks: whose threads ask, one for each address.
        together: addresses, each once for a warp, with the warp's number above them, in order.
        block_of: the block of each of ``together``.
    """

    instruction: int
    size: int
    together: Numbers
    block_of: Numbers

    @property
    def addresses(self) -> Numbers:
        return self.together & np.uint64((1 << 48) - 1)


def asked(instruction: int, size: int, warps: Numbers, blocks: Numbers, addresses: Numbers) -> Asked:
    """What lanes ask for, each place once for a warp."""
    together, first = np.unique((warps << _WARP_SHIFT) | addresses, return_index=True)
    return Asked(instruction, size, together, blocks[first])


@dataclass(frozen=True)
class Classified:
    """Bytes of a kernel, and of the sectors that they are in, by class."""

    bytes: Counter[str]
    sectors: Counter[str]


def classified(everything: Sequence[Asked], buffers: Sequence[Range]) -> Classified:
    """The classes of what the sampled blocks of one kernel ask for."""
    wide = [each for each in everything if each.size == WIDEST]
    fetched = np.unique(np.concatenate([_pieces(each) for each in wide])) if wide else np.zeros(0, np.uint64)
    most_elements = WIDEST // max([_element(each, buffers) for each in wide], default=WIDEST)
    begins: dict[int, set[int]] = {}
    for each in everything:
        begins.setdefault(each.instruction, set()).update(_begins(each))
    found, sectors = Counter[str](), Counter[str]()
    for each in everything:
        names = _names(each, fetched, len(begins[each.instruction]) > 1, most_elements, buffers)
        for name in np.unique(names):
            chosen = each.together[names == name]
            found[str(name)] += each.size * len(chosen)
            sectors[str(name)] += SECTOR_BYTES * len(np.unique(chosen // np.uint64(SECTOR_BYTES)))
    return Classified(found, sectors)


def _pieces(each: Asked) -> Numbers:
    """The sixteens that places are in, with the block above them."""
    found: Numbers = (each.block_of << _WARP_SHIFT) | (each.addresses // np.uint64(WIDEST))
    return found


def _runs(each: Asked) -> tuple[Numbers, NDArray[np.int64]]:
    """Where neighbours that a warp asks for begin, and of each place the bytes of the run that it is in."""
    is_new = np.ones(len(each.together), bool)
    is_new[1:] = np.diff(each.together) != each.size
    run = np.cumsum(is_new) - 1
    return each.addresses[is_new], np.bincount(run)[run] * each.size


def _begins(each: Asked) -> set[int]:
    """How far behind multiples of sixteen the runs begin that are as long."""
    starts, lengths = _runs(each)
    first = np.ones(len(each.together), bool)
    first[1:] = np.diff(each.together) != each.size
    return set(map(int, np.unique((starts & _PLACE)[lengths[first] >= WIDEST])))


def _names(
    each: Asked, fetched: Numbers, is_shifted: bool, most_elements: int, buffers: Sequence[Range]
) -> NDArray[np.str_]:
    """The class of each place."""
    count = len(each.together)
    if each.size == WIDEST:
        return np.full(count, "wide", "<U8")
    rest = "narrow"
    if is_shifted:
        rest = "shifted"
    elif each.size // _element(each, buffers) >= most_elements > 1:
        rest = "thin"
    found = np.where(_runs(each)[1] < WIDEST, "single", rest).astype("<U8")
    found[np.isin(_pieces(each), fetched)] = "again"
    return found


def _element(each: Asked, buffers: Sequence[Range]) -> int:
    """The bytes of an element of the buffer that is accessed; where it is not known, all that a lane asks for."""
    address = int(each.addresses[0]) if len(each.together) else 0
    return min([element for begin, end, element in buffers if begin <= address < end], default=each.size)
