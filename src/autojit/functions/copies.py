"""Views as copies: ``transpose_copy`` and its like, each named after the view whose elements it copies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

from autojit.core.dtypes import DType
from autojit.core.wrapping import named
from autojit.dispatch.declared import declared
from autojit.functions import shape as shapes
from autojit.functions import views as views
from autojit.functions.elementwise import clone
from autojit.functions.views import Pieces
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of


def _copying(view: Callable[..., Any], name: str | None = None) -> None:
    """Define the view function with its result, or each of its results, copied: ``name_copy``."""

    @functools.wraps(view)
    def copy(*arguments: object, **options: object) -> Any:
        found = view(*arguments, **options)
        return tuple([clone(piece) for piece in found]) if isinstance(found, tuple) else clone(found)

    copy.__module__, shown = __name__, name or view.__name__
    named(copy, f"{shown}_copy", f"The elements that ``{shown}`` shows, in new memory.")
    globals()[copy.__name__] = declared(method=False, out=True)(copy)


def _of(method: str) -> Callable[..., Any]:
    def view(input: Tensor) -> Any:
        return getattr(input, method)()

    view.__name__ = method
    return view


def _alias(input: Tensor) -> Any:
    return input


def _slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    axis = dim % max(type_of(input).ndim, 1)
    return input[(slice(None),) * axis + (slice(start, end, step),)]


def _view(input: Tensor, *size: Any, dtype: DType | None = None) -> Any:
    if dtype is not None or (len(size) == 1 and isinstance(size[0], DType)):
        return views.view(input, dtype=dtype or size[0])
    return input.reshape(*size)


def _expand(input: Tensor, size: Sequence[SupportsIndex], *, implicit: bool = False) -> Any:
    return shapes.expand(input, *size)


def _split(tensor: Tensor, split_size: Pieces, dim: int = 0) -> Any:
    return views.split(tensor, split_size, dim)


for _view_function in (
    views.as_strided, views.diagonal, views.select, views.split_with_sizes, views.unbind, views.view_as_complex,
    views.view_as_real, views.unfold, shapes.permute, shapes.squeeze, shapes.t, shapes.transpose, shapes.unsqueeze,
):  # fmt: skip
    _copying(_view_function)
for _name in ("ccol_indices", "col_indices", "crow_indices", "detach", "indices", "row_indices", "values"):
    _copying(_of(_name))
for _view_function, _name in (
    (_alias, "alias"), (_expand, "expand"), (_slice, "slice"), (_split, "split"), (_view, "view"),
):  # fmt: skip
    _copying(_view_function, _name)


@declared(method=False, out=True)
def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor like ``input`` with every element ``value``, a number or a 0-d tensor; differentiable in ``value``.

    Raises:
        RuntimeError: ``value`` has axes.

    Example:
        >>> import autojit as aj
        >>> aj.fill(aj.zeros(2), 3.0)
        tensor([3., 3.])
    """
    return clone(input).fill_(value)


@declared()
def slice_inverse(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A tensor shaped like ``src`` whose elements along ``dim`` from ``start`` to ``end`` are those of ``input``.

    Example:
        >>> import autojit as aj
        >>> aj.slice_inverse(aj.ones(1), aj.zeros(3), 0, 1, 2)
        tensor([0., 1., 0.])
    """
    return views.slice_scatter(src, input, dim, start, end, step)
