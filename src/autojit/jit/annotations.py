"""torch's module of this name: annotations of TorchScript, which say nothing here.

Example:
    >>> from autojit.jit.annotations import BroadcastingList2
    >>> BroadcastingList2[int]
    list[int]
"""

from __future__ import annotations

from typing import Any as Any
from typing import Dict as Dict  # noqa: UP035 (as old programs import it)
from typing import List as List  # noqa: UP035
from typing import Optional as Optional
from typing import Tuple as Tuple  # noqa: UP035
from typing import TypeAlias
from typing import Union as Union

__all__ = ["BroadcastingList1", "BroadcastingList2", "BroadcastingList3"]

BroadcastingList1: TypeAlias = list
BroadcastingList2: TypeAlias = list
BroadcastingList3: TypeAlias = list
