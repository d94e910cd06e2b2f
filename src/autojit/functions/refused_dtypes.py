"""Which kinds of numbers functions refuse although something could be computed from them, as torch does.

Ops say which dtypes they take (``accepts``), which holds in captured steps. NumPy takes more, and composites promote
integers: what a function ``refuses`` is refused in eager mode too. Elementwise functions that every program calls often
look at the dtype themselves (``op_functions.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from autojit.core.errors import UnsupportedDTypeError
from autojit.core.source import here
from autojit.tensor.tensor import Tensor, type_of

F = TypeVar("F", bound=Callable[..., Any])

_KINDS = {"bool": ("bool",), "int": ("int", "uint"), "complex": ("complex",)}
_NOTHING: frozenset[str] = frozenset()


def refuses(kinds: str) -> Callable[[F], F]:
    """Note which kinds of numbers a function does not take: of ``bool``, ``int`` and ``complex``, with blanks between.

    The public function refuses them (``argument_errors.py``), not the one that other functions call.

    Example:
        >>> @refuses("bool complex")
        ... def width(input):
        ...     return input.shape[-1]
        >>> sorted(refused_kinds(width))
        ['bool', 'complex']
    """
    found = frozenset([kind for word in kinds.split() for kind in _KINDS[word]])

    def note(function: F) -> F:
        function.__dict__["refused_kinds"] = found
        return function

    return note


def refused_kinds(function: Callable[..., Any]) -> frozenset[str]:
    """The kinds of numbers that a function was noted to refuse."""
    return getattr(function, "refused_kinds", _NOTHING)


def refuse_kinds(x: object, what: str, kinds: frozenset[str]) -> None:
    """NotImplementedError (and RuntimeError) for a tensor of one of the kinds of numbers."""
    if isinstance(x, Tensor):
        dtype = type_of(x).dtype
        if dtype.kind in kinds:
            facts = {"input": x, "at": f"{here()}, calling {what}()"}
            raise UnsupportedDTypeError(f'"{what}" not implemented for {dtype}', facts)
