"""Names for annotations: numbers, devices, and what may stand for a number while a step is captured.

Example:
    >>> import autojit as aj
    >>> isinstance(3.5, aj.types.Number)
    True
"""

from __future__ import annotations

import os
from builtins import bool as _bool
from builtins import bytes as _bytes
from builtins import float as _float
from builtins import int as _int
from builtins import str as _str
from collections.abc import Sequence
from typing import IO, TypeAlias

from autojit.core.device import Device as _Device
from autojit.core.dtypes import DType as _DType
from autojit.functions.storages import UntypedStorage as Storage
from autojit.tensor import Tensor
from autojit.tensor.size import Size

__all__ = [
    "BoolLikeType", "Device", "FileLike", "FloatLikeType", "IntLikeType", "Number", "Size", "Storage", "Tensor",
    "TensorOrTensors",
]  # fmt: skip

Number: TypeAlias = _int | _float | _bool
_Number = (_int, _float, _bool)
Device: TypeAlias = _Device | _str | _int | None
IntLikeType: TypeAlias = _int
FloatLikeType: TypeAlias = _float
BoolLikeType: TypeAlias = _bool
TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
FileLike: TypeAlias = _str | os.PathLike[_str] | IO[_bytes]
_device: TypeAlias = _Device
_dtype: TypeAlias = _DType
_size: TypeAlias = Size | list[_int] | tuple[_int, ...]
