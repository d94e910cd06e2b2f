"""torch's module of this name: annotations of TorchScript, which say nothing here.

Example:
    >>> from autojit.jit.annotations import BroadcastingList2
    >>> BroadcastingList2[int]
    list[int]
"""

from typing import TypeAlias

__all__ = ["BroadcastingList1", "BroadcastingList2", "BroadcastingList3"]

BroadcastingList1: TypeAlias = list
BroadcastingList2: TypeAlias = list
BroadcastingList3: TypeAlias = list
