"""Whether the count of references that a function sees is the one that this package's comparisons are written for.

``sys.getrefcount(x)`` in a function counts the name ``x`` and the argument besides those who hold the object: so it is
up to Python 3.13. From 3.14 on the compiler may leave the argument's reference out. Then somebody's reference would be
taken for the argument's, and memory that he holds for free: where it is not counted, nothing is taken for free.
"""

from __future__ import annotations

import sys


def _are_arguments_counted() -> bool:
    holder = [object()]
    held = holder[0]
    return sys.getrefcount(held) == 3  # the list, the name and the argument


ARGUMENTS_ARE_COUNTED = _are_arguments_counted()
