"""What the ops that ``aj.op`` makes have in common: they are one object each, known by the name of their function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self

from autojit.core.locks import new_lock


class MadeOp:
    """An op made from a user's function, which it shows as its own (name, docstring, signature).

    Attributes:
        function: what it was made from.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._lock = new_lock()
        functools.update_wrapper(self, getattr(function, "py_func", function))

    def __reduce__(self) -> str:
        """Pickled like a function: by the name of the module's variable that holds it."""
        return str(getattr(self, "__qualname__", "op"))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def name(self) -> str:
        return str(getattr(self, "__name__", "op"))

    def __call__(self, *operands: Any) -> Any:
        """The op on operands."""
        raise NotImplementedError(self.name)
