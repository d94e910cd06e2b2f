"""What a gradcheck looks at: the inputs that are differentiated, and the function by real-valued parts.

Reverse mode is checked on functions with real outputs, forward mode on functions of real inputs. Of a function with
complex ones both parts are looked at, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from autojit.core.device_array import layout_in_memory
from autojit.core.dtypes import complex128, float64
from autojit.core.user_warnings import warn
from autojit.functions.elementwise import complex as complex_from
from autojit.functions.elementwise import imag, real
from autojit.gradcheck.analytic_jacobians import (
    Function,
    Slot,
    as_tuple,
    gradients,
    is_sparse,
    outputs_of,
    rows,
    slot_of,
    values_of,
)
from autojit.gradcheck.errors import GradcheckError
from autojit.gradcheck.finite_differences import Array, numerical_jacobians, shares_elements
from autojit.tensor import Tensor
from autojit.tensor.tensor import type_of, wrap


class Part(NamedTuple):
    """The function, or a real-valued part of it.

    ``text`` is how messages begin when they are about one of the outputs or inputs whose numbers are in ``split``.
    """

    function: Function
    inputs: tuple[Any, ...]
    slots: list[Slot]
    text: str
    split: frozenset[int]

    def evaluation(self, slot: Slot) -> Callable[[], list[Array]]:
        """The values of all outputs for the present elements of one input."""
        arguments = list(self.inputs)
        arguments[slot.place] = slot.moved
        return lambda: [values_of(o) for o in outputs_of(self.function(*arguments))]


def slots_of(inputs: Sequence[Any], masked: bool) -> list[Slot]:
    """The inputs that require gradients."""
    return [slot_of(k, x, masked) for k, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]


def check_inputs(inputs: Sequence[Any], accepts_sparse: bool, forward: bool) -> None:
    """Refuse what cannot be checked, and warn of what will likely fail.

    Raises:
        ValueError: no input requires gradients; or a sparse one does and forward mode is to be checked.
        GradcheckError: there is a sparse input and nobody said how to take it.
        RuntimeError: elements of an input share memory.
    """
    tensors = [(place, x) for place, x in enumerate(inputs) if isinstance(x, Tensor)]
    if not accepts_sparse and any(is_sparse(x) for _, x in tensors):
        raise GradcheckError(
            "gradcheck expects all tensor inputs are dense when check_sparse_nnz is set to False. Pass "
            "check_sparse_nnz=True (or masked=True) to check at the specified elements only, masked=False to check at "
            "all elements."
        )
    wanted = [(place, x) for place, x in tensors if x.requires_grad]
    if not wanted:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        )
    for place, x in wanted:
        if type_of(x).dtype not in (float64, complex128):
            warn(
                f"Input #{place} requires gradient and is not a double precision floating point or complex. This "
                "check will likely fail if all the inputs are not of double precision floating point or complex.",
                UserWarning,
            )
        if forward and is_sparse(x):
            raise ValueError(f"gradcheck: forward mode takes dense inputs; input {place} is sparse")
        _check_memory(x._values() if is_sparse(x) else x, place)


def _check_memory(x: Tensor, place: int) -> None:
    array = None if x._array is None else layout_in_memory(x._array)
    if array is None:
        raise ValueError(f"gradcheck: input {place} is a tensor of a captured step; check outside of the capture")
    if array.size and any(step == 0 and n > 1 for step, n in zip(array.strides, array.shape, strict=True)):
        what = "has a dimension with stride 0"
    elif shares_elements(array):
        what = "has elements that overlap in memory"
    else:
        return
    raise RuntimeError(
        f"The {place}th input {what}. gradcheck only supports inputs that are non-overlapping to be able to compute "
        "the numerical gradients correctly. You should call .contiguous on the input before passing it to gradcheck."
    )


def check_outputs(outputs: Sequence[Tensor]) -> None:
    """Raise ValueError for a sparse output."""
    if any(is_sparse(o) for o in outputs):
        raise ValueError(
            "Sparse output is not supported at gradcheck yet. Please call to_dense(masked_grad=...) on the output of "
            "fn for gradcheck."
        )


def output_parts(func: Function, inputs: tuple[Any, ...], slots: list[Slot], found: Sequence[Tensor]) -> Iterator[Part]:
    """The function itself when all outputs are real; else its imaginary and its real parts."""
    split = frozenset(k for k, o in enumerate(found) if type_of(o).dtype.is_complex)
    if not split:
        yield Part(func, inputs, slots, "", split)
        return

    def part_of(pick: Callable[[Tensor], Tensor]) -> Function:
        return lambda *xs: tuple(pick(o) if type_of(o).dtype.is_complex else o for o in outputs_of(func(*xs)))

    yield Part(part_of(imag), inputs, slots, "While considering the imaginary part of complex outputs only, ", split)
    yield Part(part_of(real), inputs, slots, "While considering the real part of complex outputs only, ", split)


def input_parts(func: Function, inputs: tuple[Any, ...], slots: list[Slot]) -> Iterator[Part]:
    """The function itself when all differentiated inputs are real; else as a function of one of their parts."""
    split = frozenset(s.place for s in slots if type_of(s.tensor).dtype.is_complex)
    if not split:
        yield Part(func, inputs, slots, "", split)
        return
    for name, pick in (("imaginary", imag), ("real", real)):
        parts = tuple(pick(x.detach()).clone().requires_grad_() if k in split else x for k, x in enumerate(inputs))
        fixed = {k: (real if pick is imag else imag)(inputs[k].detach()) for k in split}
        function = _joined(func, fixed, pick is imag)
        text = f"While considering the {name} part of complex inputs only, "
        yield Part(function, parts, slots_of(parts, False), text, split)


def _joined(func: Function, fixed: dict[int, Tensor], is_imaginary: bool) -> Function:
    """The function of one part of complex inputs, whose other part is fixed."""

    def whole(k: int, x: Any) -> Any:
        if k not in fixed:
            return x
        return complex_from(fixed[k], x) if is_imaginary else complex_from(x, fixed[k])

    return lambda *xs: func(*[whole(k, x) for k, x in enumerate(xs)])


# -- Jacobians for their own sake


def first_jacobians(function: Function, inputs: Any, target: Any, eps: float) -> tuple[Tensor, ...]:
    """Numerical Jacobians of the first output of a function that takes its inputs as one tuple."""
    given = as_tuple(inputs)
    targets = given if target is None else as_tuple(target)
    slots = [s for s in slots_of(given, True) if any(s.tensor is t for t in targets)]

    def evaluate() -> list[Array]:
        return [values_of(outputs_of(function(given))[0])]

    return tuple(wrap(numerical_jacobians(evaluate, s.array, eps)[0]) for s in slots)


def reverse_jacobians(inputs: Any, output: Tensor, nondet_tol: float) -> tuple[tuple[Tensor, ...], bool, bool, bool]:
    """Analytical Jacobians of one output, and what holds for its gradients."""
    slots = slots_of(as_tuple(inputs), True)
    first, second = (rows(output, slots, False) for _ in range(2))
    agree = all(np.allclose(a, b, rtol=0, atol=nondet_tol) for a, b in zip(first, second, strict=True))
    found = gradients(output, slots, np.ones(type_of(output).size))
    pairs = [(type_of(g), type_of(s.tensor)) for g, s in zip(found, slots, strict=True) if g is not None]
    sizes = all(g.shape == x.shape for g, x in pairs)
    return tuple(wrap(a) for a in first), agree, sizes, all(g.dtype is x.dtype for g, x in pairs)
