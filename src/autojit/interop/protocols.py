"""NumPy's protocols on tensors: which function stands for ``np.f``, and what happens when there is none."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from autojit.core.ports import ports
from autojit.interop import (  # noqa: F401  (each enters its functions into the table)
    numpy_creation,
    numpy_elements,
    numpy_linalg,
    numpy_products,
    numpy_questions,
    numpy_reductions,
    numpy_shapes,
    ufunc_calls,
)
from autojit.interop.registry import FUNCTIONS, apart
from autojit.tensor.tensor import Tensor

_KNOWN = (Tensor, np.ndarray, np.generic)


class NumpyProtocols:
    """What Tensor's ``__array_ufunc__`` and ``__array_function__`` ask."""

    def ufunc(self, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """A ufunc or one of its methods, called with tensors."""
        if method == "__call__" and not options:
            found = ufunc_calls.quickly(ufunc, inputs)
            if found is not None:
                return found
        given = (*inputs, *(options.get("out") or ()))
        if any(_is_foreign(x) for x in given):
            return NotImplemented
        return ufunc_calls.call(ufunc, method, apart(inputs, options.get("out")), dict(options))

    def function(
        self, function: Callable[..., Any], types: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Another function of NumPy's, called with tensors."""
        if not all(issubclass(t, _KNOWN) for t in types):
            return NotImplemented
        options = {k: v for k, v in options.items() if k != "like"}
        found = FUNCTIONS.get(function)
        if found is not None:
            return found(*apart(arguments, options.get("out")), **options)
        name = f"{function.__module__.replace('numpy', 'np')}.{function.__name__}"
        return numpy_questions.without_form(name, arguments, options, function)

    def form(self, function: Any) -> Callable[..., Any] | None:
        """What stands for a function of NumPy's, or for a ufunc's loop over operands of its dtypes; None: nothing."""
        if isinstance(function, np.ufunc):
            return ufunc_calls.function_of(function)
        return FUNCTIONS.get(function) if isinstance(function, Hashable) else None


def _is_foreign(x: Any) -> bool:
    override = getattr(type(x), "__array_ufunc__", None)
    return override is not None and not isinstance(x, _KNOWN)


ports.numpy = NumpyProtocols()
