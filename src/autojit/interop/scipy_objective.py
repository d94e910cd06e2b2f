"""Functions of tensors as SciPy's optimisers call them: arrays in float64 in, numbers and arrays out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import autojit as aj
from autojit.core.errors import ShapeError
from autojit.tensor import Tensor

Array = NDArray[np.float64]


class ScipyObjective:
    """A scalar function of one tensor, as ``scipy.optimize`` wants it: value and gradient from one compiled call.

    Calling it with an array gives ``(value, gradient)``: pass it with ``jac=True``. ``hess`` and ``hessp`` are for the
    methods that take second derivatives. More arguments (SciPy's ``args``) are passed on.

    Args:
        function: from a tensor to a tensor of one element, in autojit's, torch's or NumPy's functions.
        compiled: whether calls go through ``aj.jit``.
        shape: the shape ``function`` wants its argument in; SciPy's own arguments are vectors.

    Raises:
        RuntimeError: the function's result has more than one element.

    Example:
        >>> import numpy as np
        >>> from scipy.optimize import minimize
        >>> from autojit.interop import ScipyObjective
        >>> def rosen(x):
        ...     return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
        >>> found = minimize(ScipyObjective(rosen), np.zeros(3), jac=True, method="L-BFGS-B")
        >>> found.x.round(3)
        array([1., 1., 1.])
    """

    def __init__(
        self, function: Callable[..., Any], *, compiled: bool = True, shape: tuple[int, ...] | None = None
    ) -> None:
        self.function = function
        self.shape = shape
        wrap = aj.jit if compiled else lambda function: function
        self._value_and_gradient = wrap(self._first_order)
        self._hessian = wrap(self._second_order)
        self._hessian_product = wrap(self._along)

    def __call__(self, x: Any, *args: Any) -> tuple[float, Array]:
        """Value and gradient at ``x``."""
        value, gradient = self._value_and_gradient(_vector(x), *args)
        return float(value), np.array(gradient.detach(), np.float64)

    def hess(self, x: Any, *args: Any) -> Array:
        """The Hessian at ``x``."""
        return np.array(self._hessian(_vector(x), *args).detach(), np.float64)

    def hessp(self, x: Any, p: Any, *args: Any) -> Array:
        """The Hessian at ``x`` times ``p``, without forming it."""
        return np.array(self._hessian_product(_vector(x), _vector(p), *args).detach(), np.float64)

    def _scalar(self, x: Tensor, *args: Any) -> Tensor:
        value = aj.as_tensor(self.function(x if self.shape is None else x.reshape(self.shape), *args))
        if value.numel() != 1:
            raise ShapeError(
                "ScipyObjective: the function must give one number", {"result": value}, "sum or average the result"
            )
        return value.reshape(())

    def _first_order(self, x: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        with _in_place_allowed():
            value = self._scalar(x, *args)
            (gradient,) = aj.autograd.grad(value, (x,), allow_unused=True)
        return value.detach(), aj.zeros_like(x) if gradient is None else gradient

    def _second_order(self, x: Tensor, *args: Any) -> Any:
        return aj.func.hessian(lambda at: self._scalar(at, *args))(x)

    def _along(self, x: Tensor, p: Tensor, *args: Any) -> Any:
        x = x.detach().requires_grad_()
        with _in_place_allowed():
            (gradient,) = aj.autograd.grad(self._scalar(x, *args), (x,), create_graph=True)
            if not gradient.requires_grad:
                return aj.zeros_like(x)
            (product,) = aj.autograd.grad((gradient * p).sum(), (x,), allow_unused=True)
        return aj.zeros_like(x) if product is None else product


def _in_place_allowed() -> Any:
    """NumPy programs change arrays that a derivative still needs: these are copied before they change."""
    return aj.autograd.graph.allow_mutation_on_saved_tensors()


def _vector(x: Any) -> Tensor:
    return aj.tensor(np.asarray(x, np.float64))  # a copy: SciPy changes its arrays in place
