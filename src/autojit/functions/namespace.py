"""Questions about dtypes and objects that the public namespace answers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from autojit.core import dtypes
from autojit.core.dtypes import DType, default_dtype, dtype_of_number, promote_with_number
from autojit.core.epoch import note_switch
from autojit.dispatch.awaited_kernels import awaited
from autojit.dispatch.promotion import NUMBERS
from autojit.tensor.tensor import Tensor, type_of


def is_tensor(obj: object) -> bool:
    """Whether an object is a Tensor."""
    return isinstance(obj, Tensor)


def get_default_dtype() -> DType:
    """The dtype of floating-point literals."""
    return default_dtype()


def result_type(tensor: Any, other: Any) -> DType:
    """The dtype that an operation of two operands has."""
    if isinstance(tensor, NUMBERS) and isinstance(other, NUMBERS):
        return dtypes.promote_types(dtype_of_number(tensor), dtype_of_number(other))
    if isinstance(tensor, NUMBERS):
        return promote_with_number(type_of(other).dtype, tensor)
    if isinstance(other, NUMBERS):
        return promote_with_number(type_of(tensor).dtype, other)
    pairs = [(type_of(t).dtype, type_of(t).ndim) for t in (tensor, other)]
    return dtypes.result_type(pairs)


def can_cast(from_: DType, to: DType) -> bool:
    """Whether in-place conversion between dtypes is allowed: never to a lower category."""
    from_, to = dtypes.some_dtype(from_), dtypes.some_dtype(to)
    return from_.category <= to.category and not (to.name == "bool" and from_ is not to)


class finfo:
    """Limits of a floating dtype: ``eps``, ``max``, ``min``, ``tiny``, ``bits``."""

    def __init__(self, type: DType | None = None) -> None:
        dtype = (dtypes.some_dtype(type) if type else default_dtype()).to_real()
        if not dtype.is_floating_point:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{dtype}'")
        is_small = dtype is dtypes.bfloat16 or dtype.kind == "float8"
        limits: Any = (ml_dtypes if is_small else np).finfo(dtype.numpy)
        self.dtype = dtype.name
        self.bits = dtype.size_bytes * 8
        self.eps = float(limits.eps)
        self.max = float(limits.max)
        self.min = float(limits.min)
        self.tiny = self.smallest_normal = float(limits.tiny)
        self.resolution = float(limits.resolution)

    def __repr__(self) -> str:
        parts = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{p}={getattr(self, p):g}' for p in parts)}, dtype={self.dtype})"


class iinfo:
    """Limits of an integer dtype: ``max``, ``min``, ``bits``."""

    def __init__(self, type: DType) -> None:
        type = dtypes.some_dtype(type)
        if type.category != 1:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
        limits = np.iinfo(type.numpy)
        self.dtype = type.name
        self.bits = type.size_bytes * 8
        self.max = int(limits.max)
        self.min = int(limits.min)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


_warns_always = False


def set_warn_always(b: bool) -> None:
    """Remember whether warnings should be given every time. They are: Python's warning filters say which are shown.

    Example:
        >>> import autojit as aj
        >>> aj.set_warn_always(True)
        >>> aj.is_warn_always_enabled()
        True
        >>> aj.set_warn_always(False)
    """
    global _warns_always
    if not isinstance(b, bool):
        raise TypeError(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    before, _warns_always = _warns_always, b
    note_switch("warn always", b, before, set_warn_always)


def is_warn_always_enabled() -> bool:
    """What ``set_warn_always`` was given last."""
    return _warns_always


_deterministic = _only_warns = False


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for results that do not depend on the run: every kernel adds in a fixed order, whatever was asked for.

    What is asked for is patience: eager recurrent layers and ``ctc_loss`` then wait for their kernels, instead of
    letting NumPy serve, whose results differ by rounding, until these are compiled.

    Example:
        >>> import autojit as aj
        >>> aj.use_deterministic_algorithms(True)
        >>> aj.are_deterministic_algorithms_enabled()
        True
        >>> aj.use_deterministic_algorithms(False)
    """
    global _deterministic, _only_warns
    before = _deterministic, _only_warns
    _deterministic, _only_warns = bool(mode), bool(warn_only)
    awaited.at_once = _deterministic
    put = lambda both: use_deterministic_algorithms(both[0], warn_only=both[1])
    note_switch("deterministic algorithms", (_deterministic, _only_warns), before, put)


def are_deterministic_algorithms_enabled() -> bool:
    """What ``use_deterministic_algorithms`` was given last."""
    return _deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether ``use_deterministic_algorithms`` was told last to warn only."""
    return _deterministic and _only_warns
