"""gradcheck and gradgradcheck: analytic derivatives against central differences.

Works on eager functions and on ``@autojit.jit`` functions alike: only calls and ``autograd.grad`` are used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autojit.autograd.derivatives import grad
from autojit.core.dtypes import complex128, float64
from autojit.tensor import Tensor
from autojit.tensor.factories import ones_like, zeros_like
from autojit.tensor.functions_elementwise import imag, real
from autojit.tensor.random import randn_like
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import type_of, wrap

Array = NDArray[Any]
Function = Callable[..., Any]


class GradcheckError(RuntimeError):
    """Analytic and numerical derivatives differ."""


class Tolerance(NamedTuple):
    """Perturbation and tolerances of one check."""

    eps: float
    atol: float
    rtol: float
    nondet: float


def _outputs(result: Any) -> list[Tensor]:
    found = result if isinstance(result, tuple | list) else (result,)
    if not all(isinstance(o, Tensor) for o in found):
        raise ValueError("Expected output of the checked function to be a Tensor or a tuple of Tensors")
    return [o for o in found if type_of(o).dtype.is_differentiable]


def _as_inputs(inputs: Any) -> tuple[Any, ...]:
    return (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)


def _check_inputs(inputs: Sequence[Any]) -> None:
    chosen = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    if not chosen:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have "
            "requires_grad=True."
        )
    for place, x in enumerate(inputs):
        if not isinstance(x, Tensor) or not x.requires_grad:
            continue
        if type_of(x).dtype not in (float64, complex128):
            warnings.warn(
                f"Input #{place} requires gradient and is not a double precision floating point or complex. This "
                "check will "
                "likely fail if all the inputs are not of double precision floating point or complex.",
                UserWarning,
                stacklevel=4,
            )
        _check_overlap(x, place)


def _check_overlap(x: Tensor, place: int) -> None:
    array = x._array
    if array is None:
        return
    repeated = any(step == 0 and n > 1 for step, n in zip(array.strides, array.shape, strict=True))
    if repeated or _shares_elements(array):
        raise RuntimeError(
            f"The {place}th input has a dimension with stride 0 or elements that overlap in memory. gradcheck only "
            "supports "
            "inputs that are non-overlapping to be able to compute the numerical gradients correctly. You should call "
            ".contiguous on the input before passing it to gradcheck."
        )


def _shares_elements(array: Array) -> bool:
    """Whether two indices address the same memory: exact for the strides at hand."""
    if array.size == 0 or array.flags.c_contiguous or array.flags.f_contiguous:
        return False
    offsets: Any = np.zeros((), np.int64)
    for step, n in zip(array.strides, array.shape, strict=True):
        offsets = np.add.outer(offsets, np.arange(n) * step)
    return bool(np.unique(offsets).size != offsets.size)


def _then(part: Callable[[Tensor], Tensor], whole: Callable[[Sequence[Any]], Tensor]) -> Callable[..., Tensor]:
    return lambda inputs: part(whole(inputs))


def _parts(
    function: Function, sample: Sequence[Tensor]
) -> Iterator[tuple[str, int, Callable[[Sequence[Any]], Tensor]]]:
    """(description, output number, real-valued component of the function): complex outputs count twice."""
    for number, output in enumerate(sample):

        def whole(inputs: Sequence[Any], number: int = number) -> Tensor:
            return _outputs(function(*inputs))[number]

        if type_of(output).dtype.is_complex:
            yield "While considering the real part of complex outputs only, ", number, _then(real, whole)
            yield (
                "While considering the imaginary part of complex outputs only, ",
                number,
                _then(imag, whole),
            )
        else:
            yield "", number, whole


def numerical_jacobian(
    component: Callable[[Sequence[Any]], Tensor], inputs: Sequence[Any], place: int, eps: float
) -> Array:
    """Central differences: ``[elements of the input, elements of the output]``; for complex inputs d/dx + i d/dy."""
    array = inputs[place]._array
    columns = []
    for index in np.ndindex(array.shape):
        column = _difference(component, inputs, array, index, eps)
        if array.dtype.kind == "c":
            column = column + 1j * _difference(component, inputs, array, index, eps * 1j)
        columns.append(column)
    width = type_of(component(inputs)).size
    return np.stack(columns) if columns else np.zeros((0, width))


def _difference(
    component: Callable[[Sequence[Any]], Tensor], inputs: Sequence[Any], array: Array, index: tuple[int, ...], step: Any
) -> Array:
    before = array[index].copy() if isinstance(array[index], np.generic) else array[index]
    array[index] = before + step
    high = np.array(component(inputs)._array, dtype=np.float64).reshape(-1)
    array[index] = before - step
    low = np.array(component(inputs)._array, dtype=np.float64).reshape(-1)
    array[index] = before
    return np.asarray((high - low) / (2 * abs(step)))


def analytical_jacobian(output: Tensor, inputs: Sequence[Tensor]) -> list[Array]:
    """One VJP per element of a real output: per input ``[elements of the input, elements of the output]``."""
    size = type_of(output).size
    found = [np.zeros((type_of(x).size, size), type_of(x).dtype.numpy) for x in inputs]
    for k in range(size):
        vector = np.zeros(size, type_of(output).dtype.numpy)
        vector[k] = 1
        grads = grad(output, inputs, wrap(vector.reshape(type_of(output).shape)), retain_graph=True, allow_unused=True)
        for jacobian, x, g in zip(found, inputs, grads, strict=True):
            if g is not None:
                if type_of(g) != type_of(x):
                    raise GradcheckError(f"gradient has type {type_of(g)} but the input has {type_of(x)}")
                jacobian[:, k] = np.asarray(g._array).reshape(-1)
    return found


def _mismatch(what: str, output: int, place: int, numerical: Array, analytical: Array) -> GradcheckError:
    gap = np.abs(numerical - analytical)
    worst = np.unravel_index(int(np.argmax(np.where(np.isnan(gap), np.inf, gap))), gap.shape) if gap.size else ()
    return GradcheckError(
        f"{what}Jacobian mismatch for output {output} with respect to input {place},\n"
        f"numerical:{wrap(np.ascontiguousarray(numerical))}\nanalytical:{wrap(np.ascontiguousarray(analytical))}\n"
        f"largest difference {float(np.max(gap)) if gap.size else 0.0:.3e} at input element "
        f"{worst[0] if worst else '-'}, "
        f"output element {worst[1] if worst else '-'}\n"
    )


def _compare(function: Function, inputs: tuple[Any, ...], tolerance: Tolerance) -> None:
    sample = _outputs(function(*inputs))
    if not sample or not any(o.requires_grad for o in sample):
        _check_constant(function, inputs, tolerance)
        return
    places = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    chosen = [inputs[i] for i in places]
    for what, number, component in _parts(function, sample):
        output = component(inputs)
        if not output.requires_grad:
            analytical = [np.zeros((type_of(x).size, type_of(output).size)) for x in chosen]
        else:
            analytical = analytical_jacobian(output, chosen)
            _check_repeatable(component(inputs), chosen, analytical, tolerance.nondet)
        for place, found in zip(places, analytical, strict=True):
            expected = numerical_jacobian(component, inputs, place, tolerance.eps)
            if not np.allclose(found, expected, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True):
                raise _mismatch(what, number, place, expected, found)


def _check_constant(function: Function, inputs: tuple[Any, ...], tolerance: Tolerance) -> None:
    """No output requires gradients: then the numerical derivatives must be 0."""
    sample = _outputs(function(*inputs))
    for _, _, component in _parts(function, sample):
        for place, x in enumerate(inputs):
            if isinstance(x, Tensor) and x.requires_grad:
                expected = numerical_jacobian(component, inputs, place, tolerance.eps)
                if not np.allclose(expected, 0, atol=tolerance.atol):
                    raise GradcheckError("Numerical gradient for function expected to be zero")


def _check_repeatable(output: Tensor, inputs: Sequence[Tensor], first: list[Array], tolerance: float) -> None:
    for a, b in zip(first, analytical_jacobian(output, inputs), strict=True):
        if not np.allclose(a, b, rtol=0, atol=tolerance, equal_nan=True):
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                "gives "
                "different values, although analytical gradient matches numerical gradient."
                f" The tolerance for nondeterminism was {tolerance}."
            )


def _check_undefined(function: Function, inputs: tuple[Any, ...]) -> None:
    """Backward must accept symbolic zeros for outputs that were not used, and give zero for zero cotangents."""
    outputs = [o for o in _outputs(function(*inputs)) if o.requires_grad]
    chosen = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    if not outputs:
        return
    grads = grad(outputs, chosen, [zeros_like(o) for o in outputs], allow_unused=True)
    for g in grads:
        if g is not None and np.any(np.nan_to_num(g._array, nan=1.0) != 0):
            raise GradcheckError("Expected zero gradients for zero grad_outputs; backward adds something of its own.")


def gradcheck(
    func: Function,
    inputs: Any,
    eps: float = 1e-06,
    atol: float = 1e-05,
    rtol: float = 0.001,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_ad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
    check_sparse_nnz: bool = False,
) -> bool:
    """Whether the derivatives of ``func`` at ``inputs`` agree with central differences within ``atol + rtol * |n|``.

    Inputs of dtype float64 or complex128 with ``requires_grad`` are perturbed by ``eps``, one element at a time.

    Raises:
        GradcheckError: they differ and ``raise_exception`` is set; the message shows both Jacobians.

    Example:
        >>> import autojit as aj
        >>> x = aj.tensor([0.5, 1.0], dtype=aj.float64, requires_grad=True)
        >>> aj.autograd.gradcheck(aj.sin, x)
        True
    """
    given = _as_inputs(inputs)
    _check_inputs(given)
    tolerance = Tolerance(eps, atol, rtol, nondet_tol)
    try:
        with grad_mode(True):
            _compare(func, given, tolerance)
            if check_undefined_grad:
                _check_undefined(func, given)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Function,
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
    """``gradcheck`` of the gradient: second derivatives with respect to the inputs and ``grad_outputs``.

    Random ``grad_outputs`` are drawn when none are given; ``gen_non_contig_grad_outputs`` makes them non-contiguous.
    """
    given = _as_inputs(inputs)
    with grad_mode(True):
        outputs = [o for o in _outputs(func(*given)) if o.requires_grad]
    vectors = _vectors(outputs, grad_outputs, gen_non_contig_grad_outputs)
    count = len(vectors)
    places = [i for i, x in enumerate(given) if isinstance(x, Tensor) and x.requires_grad]

    def gradient(*arguments: Any) -> tuple[Tensor, ...]:
        xs, bars = arguments[: len(arguments) - count], arguments[len(arguments) - count :]
        results = [o for o in _outputs(func(*xs)) if o.requires_grad]
        found = grad(results, [xs[i] for i in places], list(bars), create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradient,
        (*given, *vectors),
        eps,
        atol,
        rtol,
        raise_exception,
        nondet_tol,
        check_undefined_grad,
        check_grad_dtypes,
    )


def _vectors(outputs: Sequence[Tensor], given: Any, strided: bool) -> tuple[Tensor, ...]:
    if given is not None:
        return tuple(v.detach().requires_grad_() if not v.requires_grad else v for v in _as_inputs(given))
    return tuple(_random(o, strided) for o in outputs)


def _random(output: Tensor, strided: bool) -> Tensor:
    values = randn_like(output.detach()) + ones_like(output.detach()) * 0.1
    if strided and type_of(output).ndim:
        wide = np.zeros((*values._array.shape, 2), values._array.dtype)
        wide[..., 0] = values._array
        values = wrap(wide[..., 0])
    return values.requires_grad_()  # type: ignore[no-any-return]
