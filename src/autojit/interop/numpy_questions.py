"""NumPy's functions that ask about arrays: their answers are not tensors, so tensors give their values to NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autojit.interop.registry import Function, carries_more, dtype_of, enter, host, implements, tensor_of
from autojit.tensor.tensor import Tensor

_OF_VALUES = """
array_equal array_equiv allclose array2string array_repr array_str einsum_path is_busday
shares_memory may_share_memory save savez savez_compressed savetxt histogram_bin_edges
"""


def _asked(name: str) -> Function:
    def question(*arguments: Any, **options: Any) -> Any:
        return getattr(np, name)(*[host(a) for a in arguments], **{k: host(v) for k, v in options.items()})

    return question


@implements("size")
def _size(a: Any, axis: Any = None) -> int:
    x = tensor_of(a)
    if axis is None:
        return int(x.numel())
    axes = axis if isinstance(axis, tuple) else (axis,)
    return int(np.prod([x.shape[i] for i in axes]))


def _rows_and_columns(arr: Any, k: int) -> tuple[Any, int, Any]:
    rows, columns = tensor_of(arr).shape
    return rows, k, columns


def _type_of(value: Any) -> Any:
    return np.empty(0, value.dtype.numpy) if isinstance(value, Tensor) else value


enter(
    **{name: _asked(name) for name in _OF_VALUES.split()},
    shape=lambda a: tuple(tensor_of(a).shape),
    ndim=lambda a: tensor_of(a).ndim,
    tril_indices_from=lambda arr, k=0: np.tril_indices(*_rows_and_columns(arr, k)),
    triu_indices_from=lambda arr, k=0: np.triu_indices(*_rows_and_columns(arr, k)),
    diag_indices_from=lambda arr: np.diag_indices(tensor_of(arr).shape[0], tensor_of(arr).ndim),
    iscomplexobj=lambda x: tensor_of(x).dtype.is_complex,
    isrealobj=lambda x: not tensor_of(x).dtype.is_complex,
    result_type=lambda *arrays_and_dtypes: np.result_type(*[_type_of(a) for a in arrays_and_dtypes]),
    common_type=lambda *arrays: np.common_type(*[_type_of(a) for a in arrays]),
    min_scalar_type=lambda a, /: np.min_scalar_type(host(a)),
)


@implements("can_cast")
def _can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    wanted = dtype_of(to)
    assert wanted is not None
    return np.can_cast(from_.dtype.numpy if isinstance(from_, Tensor) else from_, wanted.numpy, casting)


def without_form(name: str, arguments: tuple[Any, ...], options: dict[str, Any], call: Callable[..., Any]) -> Any:
    """A function that has no form for tensors: NumPy's own on their values, as long as nothing is lost by it."""
    given = [*arguments, *options.values()]
    if any(carries_more(value) for value in given):
        raise TypeError(
            f"{name}: this NumPy function has no derivative and no compiled form for tensors; write it with functions "
            "that docs/interop.md lists, or give it x.detach() outside of aj.jit"
        )
    return call(*[host(a) for a in arguments], **{k: host(v) for k, v in options.items()})
