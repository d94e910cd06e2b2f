"""NumPy's functions that ask about arrays: their answers are not tensors, so tensors give their values to NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autojit.interop.registry import carries_more, dtype_of, host, implements, tensor_of
from autojit.tensor.tensor import Tensor

_OF_VALUES = """
array_equal array_equiv allclose array2string array_repr array_str einsum_path is_busday
shares_memory may_share_memory save savez savez_compressed savetxt histogram_bin_edges
"""


def _asked(name: str) -> Callable[..., Any]:
    def question(*arguments: Any, **options: Any) -> Any:
        return getattr(np, name)(*[host(a) for a in arguments], **{k: host(v) for k, v in options.items()})

    return question


for _name in _OF_VALUES.split():
    implements(_name)(_asked(_name))


@implements("shape")
def _shape(a: Any) -> tuple[int, ...]:
    return tuple(tensor_of(a).shape)


@implements("ndim")
def _ndim(a: Any) -> Any:
    return tensor_of(a).ndim


@implements("size")
def _size(a: Any, axis: Any = None) -> int:
    x = tensor_of(a)
    if axis is None:
        return int(x.numel())
    axes = axis if isinstance(axis, tuple) else (axis,)
    return int(np.prod([x.shape[i] for i in axes]))


@implements("tril_indices_from")
def _tril_indices_from(arr: Any, k: int = 0) -> Any:
    rows, columns = tensor_of(arr).shape
    return np.tril_indices(rows, k, columns)


@implements("triu_indices_from")
def _triu_indices_from(arr: Any, k: int = 0) -> Any:
    rows, columns = tensor_of(arr).shape
    return np.triu_indices(rows, k, columns)


@implements("diag_indices_from")
def _diag_indices_from(arr: Any) -> Any:
    x = tensor_of(arr)
    return np.diag_indices(x.shape[0], x.ndim)


@implements("iscomplexobj")
def _iscomplexobj(x: Any) -> Any:
    return tensor_of(x).dtype.is_complex


@implements("isrealobj")
def _isrealobj(x: Any) -> bool:
    return not tensor_of(x).dtype.is_complex


def _type_of(value: Any) -> Any:
    return np.empty(0, value.dtype.numpy) if isinstance(value, Tensor) else value


@implements("result_type")
def _result_type(*arrays_and_dtypes: Any) -> Any:
    return np.result_type(*[_type_of(a) for a in arrays_and_dtypes])


@implements("common_type")
def _common_type(*arrays: Any) -> Any:
    return np.common_type(*[_type_of(a) for a in arrays])


@implements("min_scalar_type")
def _min_scalar_type(a: Any, /) -> Any:
    return np.min_scalar_type(host(a))


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
