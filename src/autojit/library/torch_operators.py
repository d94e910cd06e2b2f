"""``torch.ops.aten``: torch's operators by their names, for programs that call them or keep tables by them.

``aten.add.Tensor`` is `autojit.add`: an operator computes what the function of its name does, whichever overload is
named. ``_OWN`` has those that are nothing of autojit's under that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import autojit as aj
from autojit.core.errors import UnsupportedError
from autojit.library.operators import Named
from autojit.tensor import Tensor

__all__ = ["aten"]

_PLACES = ("linalg", "special", "fft")
"""Modules whose functions are operators with the module's name before their own: ``aten.linalg_norm``."""


class TorchOverload(Named):
    """One overload of an operator; what ``torch.ops.aten.add.Tensor`` is."""

    def __init__(self, packet: TorchOperator, overload: str) -> None:
        self.overloadpacket, self._overloadname = packet, overload
        self.__name__ = f"{packet.__name__}.{overload}"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.overloadpacket(*args, **kwargs)

    def name(self) -> str:
        """``aten::add.Tensor``; of the default overload, without it."""
        name = f"aten::{self.overloadpacket.__name__}"
        return name if self._overloadname == "default" else f"{name}.{self._overloadname}"

    @property
    def namespace(self) -> str:
        """``aten``."""
        return "aten"

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self.overloadpacket.__name__}', overload='{self._overloadname}')>"


class TorchOperator(Named):
    """An operator with all of its overloads; what ``torch.ops.aten.add`` is."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.__name__, self.function = name, function
        self.overloadpacket = self
        self._overloads: dict[str, TorchOverload] = {}

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __getattr__(self, overload: str) -> TorchOverload:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return self._overloads.setdefault(overload, TorchOverload(self, overload))

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    __repr__ = __str__


class Aten(Named):
    """torch's own operators, of which there are those that are functions or methods of autojit.

    Example:
        >>> import autojit as aj
        >>> aj.ops.aten.add.Tensor(aj.ones(2), aj.ones(2), alpha=3)
        tensor([4., 4.])
        >>> aj.ops.aten.linalg_norm.default(aj.tensor([3.0, 4.0]))
        tensor(5.)
        >>> aj.ops.aten.no_such_operator
        Traceback (most recent call last):
            ...
        AttributeError: ops.aten has no operator 'no_such_operator': ...
    """

    def __init__(self) -> None:
        self._operators: dict[str, TorchOperator] = {}

    def __getattr__(self, name: str) -> TorchOperator:
        if name.startswith("__"):
            raise AttributeError(name)
        known = self._operators.get(name)
        if known is None:
            function = _function_of(name)
            if function is None:
                raise AttributeError(
                    f"ops.aten has no operator {name!r}: there are those that autojit has as a function or a method"
                )
            known = self._operators[name] = TorchOperator(name, function)
        return known

    @property
    def path(self) -> str:
        """``aten``."""
        return "aten"

    def __iter__(self) -> Iterator[str]:
        return iter(self._operators)

    def __repr__(self) -> str:
        return "<the operators of torch>"


def _index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    found: Tensor = x[tuple(slice(None) if one is None else one for one in indices)]
    return found


def _slice(x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    found: Tensor = x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]
    return found


def _to_copy(x: Tensor, **options: Any) -> Tensor:
    known = {name: value for name, value in options.items() if name not in ("layout", "pin_memory")}
    found: Tensor = x.to(x.device if known.get("device") is None else known.pop("device"), copy=True, **known)
    return found


def _in_wider(function: Callable[..., Any]) -> Callable[..., Any]:
    """``_softmax(x, dim, half_to_float)``."""
    return lambda x, dim, half_to_float: function(x, dim, dtype=aj.float32 if half_to_float else None)


def _sparse_mm_reduce_impl(*args: Any) -> NoReturn:
    raise UnsupportedError(
        "ops.aten._sparse_mm_reduce_impl is no operator here", fix="sparse.mm(a, b, reduce) computes the product"
    )


_OWN: dict[str, Callable[..., Any]] = {
    "index": _index,
    "slice": _slice,
    "alias": lambda x: x.view_as(x),
    "_to_copy": _to_copy,
    "_pin_memory": lambda x, device=None: x.pin_memory(),
    "_softmax": _in_wider(aj.softmax),
    "_log_softmax": _in_wider(aj.log_softmax),
    "_unsafe_view": lambda x, size: x.reshape(size),
    "_sparse_addmm": lambda x, a, b, beta=1, alpha=1: aj.sparse.addmm(x, a, b, beta=beta, alpha=alpha),
    "_sparse_mm_reduce_impl": _sparse_mm_reduce_impl,
}


def _function_of(name: str) -> Callable[..., Any] | None:
    """The public function whose arguments are those of torch's operator of the name; None: there is none."""
    if name in _OWN:
        return _OWN[name]
    module, _, rest = name.partition("_")
    if module in _PLACES and rest:
        return getattr(getattr(aj, module), rest, None)
    found = getattr(aj, name, None)
    if found is None:
        found = getattr(aj.Tensor, name, None)
    return found if callable(found) and not isinstance(found, type) else None


aten = Aten()
