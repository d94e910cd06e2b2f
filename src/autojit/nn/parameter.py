"""Parameter and Buffer: tensors that a Module keeps."""

from __future__ import annotations

from typing import Any

import autojit as aj
from autojit.core.errors import UsageError
from autojit.tensor import Tensor


class Parameter(Tensor):
    """A tensor that becomes a parameter of the Module it is assigned to.

    Shares storage with ``data``; is always a leaf. ``requires_grad`` defaults to True.

    Example:
        >>> import autojit as aj
        >>> aj.nn.Parameter(aj.zeros(2)).requires_grad
        True
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = _empty()
        if requires_grad and not (data.is_floating_point() or data.is_complex()):
            raise UsageError(
                "Only Tensors of floating point and complex dtype can require gradients",
                {"data": data},
                "pass requires_grad=False",
            )
        return Tensor._make_subclass(cls, data.detach(), requires_grad)

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        """Everything was done by ``__new__``; Tensor's own initialiser must not run again."""

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        """A parameter of the same class on memory of its own, without the gradient."""
        found = memo.get(id(self))
        if found is None:
            found = memo[id(self)] = Tensor._make_subclass(type(self), self.detach().clone(), self.requires_grad)
        return found

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild_parameter, (self.detach().numpy(), self.requires_grad)


class Buffer(Tensor):
    """A tensor that becomes a buffer of the Module it is assigned to: state without a gradient.

    ``persistent`` buffers are part of the Module's ``state_dict``.
    """

    __slots__ = ("persistent",)
    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = _empty()
        made: Buffer = Tensor._make_subclass(cls, data.detach(), data.requires_grad)
        made.persistent = persistent
        return made

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        """Everything was done by ``__new__``."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        found = memo.get(id(self))
        if found is None:
            found = memo[id(self)] = Buffer(self.detach().clone(), persistent=self.persistent)
        return found

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild_buffer, (self.detach().numpy(), self.persistent)


def _empty() -> Tensor:
    return aj.empty(0)


def _rebuild_parameter(array: Any, requires_grad: bool) -> Parameter:
    return Parameter(aj.tensor(array), requires_grad)


def _rebuild_buffer(array: Any, persistent: bool) -> Buffer:
    return Buffer(aj.tensor(array), persistent=persistent)
