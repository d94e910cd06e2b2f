"""What types, ops and keys with open sizes are compared by: whether they are written alike.

A size behaves in a capture as the int of the call at hand, and what is asked of it is recorded. The compiler's own
comparisons must ask nothing of the call, so they look at the expressions.
"""

from __future__ import annotations

from typing import Any

from autojit.core.size_recorder import asked
from autojit.core.sizes import SymbolicSize


def structure(value: object) -> Any:
    """What types, ops and keys are compared and hashed by: open sizes as expressions, in tuples at any depth.

    Two of them are equal exactly when they are written alike; nothing is asked about the call at hand.

    Example:
        >>> from autojit.core.sizes import named_size
        >>> structure((named_size("s0", 64), "rows")) == structure((named_size("s0", 65), "rows"))
        True
    """
    if asked.recorder is None:
        return value  # nobody answers for a call: sizes compare by their expressions themselves
    if type(value) is tuple and _KINDS.isdisjoint(map(type, value)):
        return value
    return _structure(value)


_KINDS = frozenset((SymbolicSize, tuple))
"""Of parts that are not compared as they are. Most captures have no open sizes: their shapes are seen at a glance."""


def _structure(value: object) -> Any:
    if type(value) is tuple:
        if _KINDS.isdisjoint(map(type, value)):
            return value
        return tuple([_structure(part) if type(part) in _KINDS else part for part in value])
    return value.expression if type(value) is SymbolicSize else value
