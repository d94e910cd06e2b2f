"""What compiled steps keep arrays in, told apart from what holds an array for somebody who may look at it.

Who asks whether anybody else holds an array (``jit.given_memory``) looks at what refers to it once, and compares the
count of references later. So what keeps arrays in lists and tuples only to compare them, or to know where they are,
keeps them in these, and says when it lets go of one that is watched: a count may be the same since somebody else has
taken hold of the array.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

watched: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Arrays whose references are counted, by id."""
releases = np.zeros(1, np.int64)
"""How often something of the compiler's own may have let go of one of them; a word that native entries compare."""


class OwnList(list[Any]):
    """A list of the compiler's own."""

    __slots__ = ()


class OwnTuple(tuple[Any, ...]):
    """A tuple of the compiler's own. Python's collector knows of all of them, and of few plain ones with arrays."""

    __slots__ = ()


def let_go(arrays: Iterable[object] | None = None) -> None:
    """The compiler's own lets go of these arrays, or (None) of some that it does not know."""
    if watched and (arrays is None or any(id(array) in watched for array in arrays)):
        releases[0] += 1
