"""The checks behind ``gradcheck``, in order; and the comparisons of analytic derivatives with differences.

How to read: ``check`` runs everything. ``_compare`` and ``_compare_forward`` look at one real-valued part of the
function (``parts.py``), element by element or by one random projection. What else a derivative must keep is in
``promises.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from autojit.dispatch.awaited_kernels import awaited
from autojit.gradcheck.analytic_jacobians import Function, Slot, as_tuple, columns, outputs_of, products, push, rows
from autojit.gradcheck.errors import GradcheckError
from autojit.gradcheck.finite_differences import (
    Array,
    numerical_jacobians,
    numerical_products,
    unit_vector,
    weights,
    worst_place,
)
from autojit.gradcheck.parts import Part, check_inputs, check_outputs, input_parts, output_parts, slots_of
from autojit.gradcheck.promises import (
    check_batched_gradients,
    check_batched_tangents,
    check_missing_gradients,
    check_missing_tangents,
    check_zero_in_zero_out,
)
from autojit.tensor import Tensor
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import type_of, wrap

_SEED = 0x5EED  # of the random projections: the same ones in every run


class Options(NamedTuple):
    """What ``gradcheck`` is asked for besides a function and its inputs."""

    eps: float
    atol: float
    rtol: float
    check_sparse_nnz: bool
    nondet_tol: float
    check_undefined_grad: bool
    check_grad_dtypes: bool
    check_batched_grad: bool
    check_batched_forward_grad: bool
    check_forward_ad: bool
    check_backward_ad: bool
    fast_mode: bool
    masked: bool | None


def check(func: Function, inputs: Any, options: Options) -> bool:
    """``gradcheck``: True, or GradcheckError."""
    if not (options.check_forward_ad or options.check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if options.check_batched_grad and not options.check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if options.check_batched_forward_grad and not options.check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    if options.check_sparse_nnz and options.masked is False:
        raise ValueError(
            f"Expected specified check_sparse_nnz (={options.check_sparse_nnz}) to be equal to masked "
            f"(={options.masked})."
        )
    given = as_tuple(inputs)
    check_inputs(given, options.check_sparse_nnz or options.masked is not None, options.check_forward_ad)
    slots = slots_of(given, options.check_sparse_nnz or bool(options.masked))
    with grad_mode(True), awaited.settled():  # the same results by the same means, so that differences mean something
        found = outputs_of(func(*given))
        check_outputs(found)
        if options.check_backward_ad:
            for part in output_parts(func, given, slots, found):
                _compare(part, options)
        if options.check_forward_ad:
            for part in input_parts(func, given, slots):
                _compare_forward(part, options)
                if options.check_undefined_grad:
                    check_missing_tangents(part.function, part.inputs, part.slots)
        if options.check_batched_forward_grad:
            check_batched_tangents(func, given, slots)
        if not options.check_backward_ad:
            return True
        if options.check_batched_grad:
            check_batched_gradients(func, given, slots)
        check_zero_in_zero_out(func, given, slots)
        if options.check_undefined_grad:
            check_missing_gradients(func, given, slots)
    return True


def _compare(part: Part, options: Options) -> None:
    """Reverse mode against differences."""
    found, chosen = _chosen(part, options)
    if not chosen:
        return
    if options.fast_mode:
        _compare_products(part, options, chosen)
        return
    numerical = [numerical_jacobians(part.evaluation(s), s.array, options.eps) for s in part.slots]
    for number, k in enumerate(chosen):
        analytical = rows(found[k], part.slots, options.check_grad_dtypes)
        _check_repeatable(analytical, rows(found[k], part.slots, False), options)
        for slot, n, a in zip(part.slots, numerical, analytical, strict=True):
            if not _close(a, n[k], options.atol, options.rtol):
                raise GradcheckError(_message(part.text if k in part.split else "", "", number, slot, n[k], a))


def _compare_forward(part: Part, options: Options) -> None:
    """Forward mode against differences."""
    _, chosen = _chosen(part, options)
    for slot in part.slots if chosen else ():
        text = part.text if slot.place in part.split else ""
        if options.fast_mode:
            _compare_push(part, options, slot, chosen, text)
            continue
        numerical = numerical_jacobians(part.evaluation(slot), slot.array, options.eps)
        analytical = columns(part, slot, chosen, options.check_grad_dtypes)
        for number, (k, a) in enumerate(zip(chosen, analytical, strict=True)):
            if not _close(a, numerical[k], options.atol, options.rtol):
                raise GradcheckError(_message(text, "computed with forward mode ", number, slot, numerical[k], a))


def _compare_products(part: Part, options: Options, chosen: Sequence[int]) -> None:
    """``v^T J u`` for one random ``u`` per input and ``v`` per output; a mismatch is shown in full."""
    draw = np.random.default_rng(_SEED)
    found = outputs_of(part.function(*part.inputs))
    vectors = {k: unit_vector(draw, type_of(found[k]).size) for k in chosen}
    analytical = {k: products(found[k], part.slots, vectors[k], options.check_grad_dtypes) for k in chosen}
    for k in chosen:
        _check_repeatable(analytical[k], products(found[k], part.slots, vectors[k], False), options)
    for place, slot in enumerate(part.slots):
        u, second = unit_vector(draw, slot.array.size), unit_vector(draw, slot.array.size)
        evaluate = part.evaluation(slot)
        along = numerical_products(evaluate, slot.array, u, options.eps)
        is_complex = slot.array.dtype.kind == "c"
        across = numerical_products(evaluate, slot.array, 1j * second, options.eps) if is_complex else along
        for number, k in enumerate(chosen):
            v, g = vectors[k], analytical[k][place]
            n: Any = np.dot(v, along[k]) + (1j * np.dot(v, across[k]) if is_complex else 0)
            a: Any = np.dot(g.real, u) + (1j * np.dot(g.imag, second) if is_complex else 0)
            weight = weights(u, v) + (weights(second, v) if is_complex else 0.0)
            if not _close(a, n, options.atol * weight, options.rtol):
                whole = numerical_jacobians(evaluate, slot.array, options.eps)[k]
                slow = rows(found[k], [slot], False)[0]
                text = part.text if k in part.split else ""
                raise GradcheckError(_message(text, "", number, slot, n, a) + _in_full(whole, slow))


def _compare_push(part: Part, options: Options, slot: Slot, chosen: Sequence[int], text: str) -> None:
    """``J u`` for one random ``u``, by forward mode and by differences."""
    u = unit_vector(np.random.default_rng(_SEED + slot.place), slot.array.size)
    evaluate = part.evaluation(slot)
    numerical = numerical_products(evaluate, slot.array, u, options.eps)
    analytical = push(part, slot, u, chosen, options.check_grad_dtypes)
    for number, (k, a) in enumerate(zip(chosen, analytical, strict=True)):
        if not _close(a, numerical[k], options.atol * weights(u, None), options.rtol):
            whole = numerical_jacobians(evaluate, slot.array, options.eps)[k]
            (slow,) = columns(part, slot, [k], False)
            shown = _message(text, "computed with forward mode ", number, slot, numerical[k], a)
            raise GradcheckError(shown + _in_full(whole, slow))


def _close(a: Any, n: Any, atol: float, rtol: float) -> bool:
    return bool(np.allclose(a, n, rtol=rtol, atol=atol))


def _chosen(part: Part, options: Options) -> tuple[tuple[Tensor, ...], list[int]]:
    """The outputs, and which of them require gradients; if none does, moving the inputs must change nothing."""
    found = outputs_of(part.function(*part.inputs))
    chosen = [k for k, o in enumerate(found) if o.requires_grad]
    for slot in () if chosen else part.slots:
        if any(np.any(j != 0) for j in numerical_jacobians(part.evaluation(slot), slot.array, options.eps)):
            raise GradcheckError("Numerical gradient for function expected to be zero")
    return found, chosen


def _check_repeatable(first: Sequence[Array], second: Sequence[Array], options: Options) -> None:
    for a, b in zip(first, second, strict=True):
        if not np.allclose(a, b, rtol=0, atol=options.nondet_tol, equal_nan=True):
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                "gives different values, although analytical gradient matches numerical gradient. The tolerance for "
                f"nondeterminism was {options.nondet_tol}; the largest difference is {worst_place(a, b)[0]:.3e}."
            )


def _message(text: str, mode: str, output: int, slot: Slot, numerical: Any, analytical: Any) -> str:
    largest, place = worst_place(numerical, analytical)
    where = ""
    if len(place) == 2:
        element = np.unravel_index(place[0], slot.array.shape) if slot.array.ndim else ()
        where = f" at input element {tuple(int(i) for i in element)}, output element {place[1]} (flattened)"
    return (
        f"{text}Jacobian {mode}mismatch for output {output} with respect to input {slot.place},\n"
        f"numerical:{_shown(numerical)}\nanalytical:{_shown(analytical)}\n"
        f"largest difference {largest:.3e}{where}\n"
    )


def _in_full(numerical: Array, analytical: Array) -> str:
    return (
        "\nThe quantities above are projections on random vectors (fast mode). The Jacobians element by element:\n\n"
        f"Numerical:\n {_shown(numerical)}\nAnalytical:\n{_shown(analytical)}\n\n"
        f"The max per-element difference (slow mode) is: {worst_place(numerical, analytical)[0]}.\n"
    )


def _shown(found: Any) -> Any:
    return wrap(np.ascontiguousarray(found)) if np.ndim(found) else found
