"""``assert_gradients``: a function's derivatives are right, of every order asked for, eagerly and compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import autojit as aj
from autojit.testing.comparison import assert_close

MODES = ("eager", "jit")
Function = Callable[..., Any]


def assert_gradients(
    fn: Function,
    inputs: Any,
    order: int = 2,
    modes: Sequence[str] = MODES,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    fast_mode: bool = False,
    **options: Any,
) -> None:
    """Assert that the derivatives of ``fn(*inputs)`` up to ``order`` agree with finite differences in every mode.

    In mode ``"jit"`` the function is compiled; with both modes its outputs are also compared. The inputs that require
    gradients are differentiated. If none does, all floating and complex tensors are, as copies in double precision.

    Args:
        inputs: a tensor or a tuple; entries that are not tensors are passed on as they are.
        order: 1 checks gradients, 2 also the gradients of gradients, and so on.
        options: passed on to ``gradcheck`` (``check_forward_ad``, ``nondet_tol``, ...).

    Raises:
        AssertionError: a derivative is wrong; the message names mode and order and shows both Jacobians.
        ValueError: ``order`` is less than 1, a mode is unknown, or there is nothing to differentiate.

    Example:
        >>> import autojit as aj
        >>> assert_gradients(lambda x: (x**3).sum(), aj.tensor([1.0, 2.0]), order=3)
    """
    if order < 1:
        raise ValueError(f"assert_gradients: order must be 1 or more, not {order}")
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or not modes:
        raise ValueError(f"assert_gradients: modes are {', '.join(MODES)}, not {', '.join(unknown) or 'none'}")
    given = _leaves(inputs)
    tolerances = {"eps": eps, "atol": atol, "rtol": rtol, "fast_mode": fast_mode, **options}
    outputs = []
    for mode in modes:
        function = aj.jit(fn) if mode == "jit" else fn
        outputs.append(function(*given))
        for n in range(1, order + 1):
            _check(function, given, n, mode, tolerances)
    for mode, found in zip(modes[1:], outputs[1:], strict=True):
        assert_close(found, outputs[0], msg=lambda text, mode=mode: f"{mode} differs from {modes[0]}: {text}")  # type: ignore[misc]


def _leaves(inputs: Any) -> tuple[Any, ...]:
    given = (inputs,) if isinstance(inputs, aj.Tensor) else tuple(inputs)
    if any(isinstance(x, aj.Tensor) and x.requires_grad for x in given):
        return given
    leaves = tuple(_leaf(x) if isinstance(x, aj.Tensor) else x for x in given)
    if not any(isinstance(x, aj.Tensor) and x.requires_grad for x in leaves):
        raise ValueError("assert_gradients: none of the inputs is a floating or complex tensor")
    return leaves


def _leaf(x: aj.Tensor) -> aj.Tensor:
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        return x
    made: aj.Tensor = x.detach().to(aj.complex128 if x.dtype.is_complex else aj.float64, copy=True)
    return made.requires_grad_(True)


def _check(function: Function, inputs: tuple[Any, ...], order: int, mode: str, tolerances: dict[str, Any]) -> None:
    """One order: finite differences of the derivative of the order below."""
    try:
        if order == 1:
            aj.autograd.gradcheck(function, inputs, **tolerances)
            return
        for _ in range(order - 2):
            function = gradient_of(function)
        aj.autograd.gradgradcheck(function, inputs, **tolerances)
    except aj.autograd.GradcheckError as error:
        name = getattr(function, "__name__", None) or repr(function)
        raise AssertionError(f"derivative {order} of {name} is wrong ({mode}): {error}") from error


def gradient_of(function: Function) -> Function:
    """The gradient of the sum of a function's outputs, as a function of the same arguments, recorded in turn.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor(2.0, requires_grad=True)
        >>> gradient_of(gradient_of(lambda x: x**3))(x)[0].item()
        12.0
    """

    def gradient(*inputs: Any) -> tuple[aj.Tensor, ...]:
        wanted = [x for x in inputs if isinstance(x, aj.Tensor) and x.requires_grad]
        with aj.enable_grad():
            found = function(*inputs)
            outputs = [y for y in (found if isinstance(found, tuple | list) else (found,)) if y.requires_grad]
            if not outputs:
                return tuple(aj.zeros_like(x, requires_grad=True) for x in wanted)
            cotangents = [aj.ones_like(y) for y in outputs]
            return tuple(aj.autograd.grad(outputs, wanted, cotangents, create_graph=True, materialize_grads=True))

    gradient.__name__ = f"gradient of {getattr(function, '__name__', 'it')}"
    return gradient
