"""Derivatives held against differences: gradcheck and gradgradcheck, the contents of ``autojit.autograd.gradcheck``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autojit.core.user_warnings import warn
from autojit.gradcheck.checks import Options, check
from autojit.gradcheck.errors import GradcheckError, PrivateNameWarning
from autojit.gradcheck.parts import first_jacobians, reverse_jacobians
from autojit.gradcheck.second_order import gradient_of

__all__ = ["GradcheckError", "get_analytical_jacobian", "get_numerical_jacobian", "gradcheck", "gradgradcheck"]


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    eps: float = 1e-06,
    atol: float = 1e-05,
    rtol: float = 0.001,
    raise_exception: bool = True,
    check_sparse_nnz: bool = False,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether the derivatives of ``func`` at ``inputs`` agree with central differences.

    Every element of an input that requires gradients is moved by ``eps`` both ways, and each column ``n`` of the
    Jacobian found so must be met within ``atol + rtol * |n|``. That takes float64 or complex128 inputs. Works for
    eager functions and for ``@autojit.jit`` functions alike; of complex outputs both parts are checked.

    Args:
        func: takes Tensors, returns a Tensor or a sequence of them; those that require gradients are checked.
        inputs: a Tensor or a sequence, which may hold anything; one must require gradients.
        eps: the step of the differences.
        atol, rtol: tolerances, as in ``allclose``.
        raise_exception: raise instead of returning False.
        check_sparse_nnz, masked: accept sparse inputs and compare at the specified elements only; ``masked=False``
            accepts them and compares all elements.
        nondet_tol: how far two runs of one backward may differ.
        check_undefined_grad: also let backward run with gradients of outputs missing.
        check_grad_dtypes: gradients must have their inputs' dtypes.
        check_batched_grad, check_batched_forward_grad: also compute gradients (tangents) of two vectors as a batch.
        check_forward_ad, check_backward_ad: which modes to check.
        fast_mode: compare one random projection instead of every element.

    Raises:
        GradcheckError: they disagree; the message has the numbers of input and output, both Jacobians, the largest
            difference and where it is.
        ValueError: no input requires gradients, or an input or output is of a kind that cannot be checked.
        RuntimeError: elements of an input share memory, so that none can be moved alone.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor([0.5, 1.0], dtype=aj.float64, requires_grad=True)
        >>> aj.autograd.gradcheck(aj.sin, x)
        True
    """
    options = {name: value for name, value in locals().items() if name not in ("func", "inputs", "raise_exception")}
    try:
        return check(func, inputs, Options(**options))
    except GradcheckError:
        if raise_exception:
            raise
        return False


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    eps: float = 1e-06,
    atol: float = 1e-05,
    rtol: float = 0.001,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """``gradcheck`` of the gradient: second derivatives with respect to the inputs and to ``grad_outputs``.

    ``grad_outputs`` are the vectors of the vector-Jacobian product, one per output that requires gradients. Without
    them random ones are drawn from autojit's generator (``manual_seed`` repeats them), with gaps in memory if
    ``gen_non_contig_grad_outputs``. ``check_rev_over_rev`` and ``check_fwd_over_rev`` say by which mode the gradient is
    differentiated again; everything else is as for ``gradcheck``.

    Raises:
        GradcheckError: second derivatives disagree.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor([0.5, 1.0], dtype=aj.float64, requires_grad=True)
        >>> aj.autograd.gradgradcheck(aj.sin, x)
        True
    """
    given = {"gen_non_contig_grad_outputs", "check_fwd_over_rev", "check_rev_over_rev"}
    leave = {*given, "func", "inputs", "grad_outputs", "given"}
    options = {name: value for name, value in locals().items() if name not in leave and name != "leave"}
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    for name in ("check_undefined_grad", "check_batched_grad"):
        if options[name] and not check_rev_over_rev:
            raise AssertionError(f"Setting {name}=True requires check_rev_over_rev to be True")
    gradient, arguments = gradient_of(func, inputs, grad_outputs, gen_non_contig_grad_outputs)
    return gradcheck(
        gradient, arguments, check_forward_ad=check_fwd_over_rev, check_backward_ad=check_rev_over_rev, **options
    )


def _warn_private(name: str, grad_out: float) -> None:
    warn(
        f"`{name}` was part of PyTorch's private API and is here for code that uses it; call gradcheck, or "
        "autograd.functional.jacobian for a Jacobian.",
        PrivateNameWarning,
    )
    if grad_out != 1.0:
        raise ValueError(f"Expected grad_out to be 1.0. {name} does not support other values of grad_out.")


def get_numerical_jacobian(
    fn: Callable[..., Any], inputs: Any, target: Any = None, eps: float = 1e-3, grad_out: float = 1.0
) -> tuple[Any, ...]:
    """Per input of ``target`` (default: of all that require gradients) the Jacobian of the first output.

    ``fn`` takes the inputs as one tuple. Each is ``[elements of the input, elements of the output]``.

    Raises:
        ValueError: ``grad_out`` is not 1.
    """
    _warn_private("get_numerical_jacobian", grad_out)
    return first_jacobians(fn, inputs, target, eps)


def get_analytical_jacobian(
    inputs: Any, output: Any, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[tuple[Any, ...], bool, bool, bool]:
    """(Jacobians of an output by the inputs, whether two runs agree, whether gradients have the right sizes, dtypes).

    Raises:
        ValueError: ``grad_out`` is not 1.
    """
    _warn_private("get_analytical_jacobian", grad_out)
    return reverse_jacobians(inputs, output, nondet_tol)
