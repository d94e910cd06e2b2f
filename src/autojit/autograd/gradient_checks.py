"""The checks behind ``gradcheck``: which derivatives are compared with which, and what else a derivative must keep.

How to read: ``check`` runs everything. Reverse mode is checked on real-valued functions only, so functions with complex
outputs are checked by their imaginary and real parts; forward mode likewise by the parts of complex inputs. ``_compare``
is one such comparison; the functions after it check single promises (undefined gradients, batches, repeatability).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from autojit.autograd import forward_ad
from autojit.autograd.analytic_jacobians import (
    Function,
    Slot,
    as_tuple,
    columns,
    differentiable,
    duals,
    outputs_of,
    products,
    push,
    rows,
    values_of,
)  # fmt: skip
from autojit.autograd.derivatives import grad
from autojit.autograd.finite_differences import (
    Array,
    numerical_jacobians,
    numerical_products,
    shares_elements,
    unit_vector,
    weights,
    worst_place,
)  # fmt: skip
from autojit.autograd.gradcheck import GradcheckError
from autojit.core.dtypes import complex128, float64
from autojit.core.errors import DifferentiationError
from autojit.tensor import Tensor
from autojit.tensor.batch_layer import over_batch
from autojit.tensor.factories import zeros_like
from autojit.tensor.functions_elementwise import complex as complex_from
from autojit.tensor.functions_elementwise import imag, real
from autojit.tensor.functions_shape import stack
from autojit.tensor.node import Node
from autojit.tensor.random import rand, randn_like
from autojit.tensor.recording import edge_of, meta_of
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import alias, type_of, wrap

_SEED = 0x5EED  # of the random projections: the same ones in every run


class Options(NamedTuple):
    """Step and tolerances of one check."""

    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    grad_dtypes: bool
    fast: bool


class Part(NamedTuple):
    """A real-valued view of the function: the function, its inputs, what is looked at, which numbers are complex."""

    function: Function
    inputs: tuple[Any, ...]
    text: str
    split: frozenset[int]


def check(
    func: Function,
    inputs: Any,
    *,
    eps: float,
    atol: float,
    rtol: float,
    check_sparse_nnz: bool,
    nondet_tol: float,
    check_undefined_grad: bool,
    check_grad_dtypes: bool,
    check_batched_grad: bool,
    check_batched_forward_grad: bool,
    check_forward_ad: bool,
    check_backward_ad: bool,
    fast_mode: bool,
    masked: bool | None,
) -> bool:
    """``gradcheck``: True, or GradcheckError."""
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    options = Options(eps, atol, rtol, nondet_tol, check_grad_dtypes, fast_mode)
    given = as_tuple(inputs)
    with grad_mode(True):
        _check_inputs(given)
        found = outputs_of(func(*given))
        if check_backward_ad:
            for part in _output_parts(func, given, found):
                _compare(part, options)
        if check_forward_ad:
            for part in _input_parts(func, given):
                _compare_forward(part, options)
                if check_undefined_grad:
                    _check_missing_tangents(part)
        if check_batched_forward_grad:
            _check_batched_tangents(func, given)
        if not check_backward_ad:
            return True
        if check_batched_grad:
            _check_batched_gradients(func, given)
        _check_zero_in_zero_out(func, given)
        if check_undefined_grad:
            _check_missing_gradients(func, given)
    return True


# -- inputs and outputs


def _check_inputs(inputs: Sequence[Any]) -> None:
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them have "
            "requires_grad=True."
        )
    for place, x in enumerate(inputs):
        if not isinstance(x, Tensor) or not x.requires_grad:
            continue
        if type_of(x).dtype not in (float64, complex128):
            warnings.warn(
                f"Input #{place} requires gradient and is not a double precision floating point or complex. This "
                "check will likely fail if all the inputs are not of double precision floating point or complex.",
                UserWarning,
                stacklevel=4,
            )
        array = x._array
        if array is None:
            raise ValueError(f"gradcheck: input {place} is a tensor of a captured step; check outside of the capture")
        if any(step == 0 and n > 1 for step, n in zip(array.strides, array.shape, strict=True)):
            what = "has a dimension with stride 0"
        elif shares_elements(array):
            what = "has elements that overlap in memory"
        else:
            continue
        raise RuntimeError(
            f"The {place}th input {what}. gradcheck only supports inputs that are non-overlapping to be able to "
            "compute the numerical gradients correctly. You should call .contiguous on the input before passing it to "
            "gradcheck."
        )


def _slots(inputs: Sequence[Any]) -> list[Slot]:
    return [Slot(i, x, x._array) for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]


def _output_parts(func: Function, inputs: tuple[Any, ...], found: Sequence[Tensor]) -> Iterator[Part]:
    """The function itself when all outputs are real; else its imaginary and its real parts."""
    split = frozenset(k for k, o in enumerate(found) if type_of(o).dtype.is_complex)
    if not split:
        yield Part(func, inputs, "", split)
        return

    def part_of(pick: Callable[[Tensor], Tensor]) -> Function:
        return lambda *xs: tuple(pick(o) if type_of(o).dtype.is_complex else o for o in outputs_of(func(*xs)))

    yield Part(part_of(imag), inputs, "While considering the imaginary part of complex outputs only, ", split)
    yield Part(part_of(real), inputs, "While considering the real part of complex outputs only, ", split)


def _input_parts(func: Function, inputs: tuple[Any, ...]) -> Iterator[Part]:
    """The function itself when all differentiated inputs are real; else as a function of one of their parts."""
    split = frozenset(s.place for s in _slots(inputs) if type_of(s.tensor).dtype.is_complex)
    if not split:
        yield Part(func, inputs, "", split)
        return
    for name, pick in (("imaginary", imag), ("real", real)):
        parts = tuple(pick(x.detach()).clone().requires_grad_() if k in split else x for k, x in enumerate(inputs))
        fixed = {k: (real if pick is imag else imag)(inputs[k].detach()) for k in split}

        def joined(*xs: Any, fixed: Any = fixed, is_imaginary: bool = pick is imag) -> Any:
            whole = [
                x if k not in fixed else complex_from(fixed[k], x) if is_imaginary else complex_from(x, fixed[k])
                for k, x in enumerate(xs)
            ]
            return func(*whole)

        yield Part(joined, parts, f"While considering the {name} part of complex inputs only, ", split)


# -- comparisons


def _compare(part: Part, options: Options) -> None:
    """Reverse mode against differences."""
    slots = _slots(part.inputs)
    found = outputs_of(part.function(*part.inputs))
    chosen = [k for k, o in enumerate(found) if o.requires_grad]
    if not chosen:
        _check_constant(part, slots, options)
        return
    if options.fast:
        _compare_products(part, options, slots, chosen)
        return
    numerical = [numerical_jacobians(_evaluation(part), s.array, options.eps) for s in slots]
    for number, k in enumerate(chosen):
        analytical = rows(found[k], slots, options.grad_dtypes)
        _check_repeatable(analytical, rows(found[k], slots, False), options)
        for slot, n, a in zip(slots, numerical, analytical, strict=True):
            if not _close(a, n[k], options.atol, options.rtol):
                raise GradcheckError(_message(part.text if k in part.split else "", "", number, slot, n[k], a))


def _compare_forward(part: Part, options: Options) -> None:
    """Forward mode against differences."""
    slots = _slots(part.inputs)
    found = outputs_of(part.function(*part.inputs))
    chosen = [k for k, o in enumerate(found) if o.requires_grad]
    if not chosen:
        _check_constant(part, slots, options)
        return
    for slot in slots:
        text = part.text if slot.place in part.split else ""
        if options.fast:
            _compare_push(part, options, slots, slot, chosen, text)
            continue
        numerical = numerical_jacobians(_evaluation(part), slot.array, options.eps)
        (analytical,) = columns(part.function, part.inputs, [slot], chosen, options.grad_dtypes)
        for number, (k, a) in enumerate(zip(chosen, analytical, strict=True)):
            if not _close(a, numerical[k], options.atol, options.rtol):
                raise GradcheckError(_message(text, "computed with forward mode ", number, slot, numerical[k], a))


def _compare_products(part: Part, options: Options, slots: Sequence[Slot], chosen: Sequence[int]) -> None:
    """``v^T J u`` for one random ``u`` per input and ``v`` per output; a mismatch is shown in full."""
    draw = np.random.default_rng(_SEED)
    found = outputs_of(part.function(*part.inputs))
    vectors = {k: unit_vector(draw, type_of(found[k]).size) for k in chosen}
    analytical = {k: products(found[k], slots, vectors[k], options.grad_dtypes) for k in chosen}
    for k in chosen:
        _check_repeatable(analytical[k], products(found[k], slots, vectors[k], False), options)
    for place, slot in enumerate(slots):
        u, second = unit_vector(draw, slot.array.size), unit_vector(draw, slot.array.size)
        along = numerical_products(_evaluation(part), slot.array, u, options.eps)
        is_complex = slot.array.dtype.kind == "c"
        across = numerical_products(_evaluation(part), slot.array, 1j * second, options.eps) if is_complex else along
        for number, k in enumerate(chosen):
            v, g = vectors[k], analytical[k][place]
            n: Any = np.dot(v, along[k]) + (1j * np.dot(v, across[k]) if is_complex else 0)
            a: Any = np.dot(g.real, u) + (1j * np.dot(g.imag, second) if is_complex else 0)
            if not _close(a, n, options.atol * weights(u, v), options.rtol):
                whole = numerical_jacobians(_evaluation(part), slot.array, options.eps)[k]
                slow = rows(found[k], [slot], False)[0]
                text = part.text if k in part.split else ""
                raise GradcheckError(_message(text, "", number, slot, n, a) + _in_full(whole, slow))


def _compare_push(
    part: Part, options: Options, slots: Sequence[Slot], slot: Slot, chosen: Sequence[int], text: str
) -> None:
    u = unit_vector(np.random.default_rng(_SEED + slot.place), slot.array.size)
    numerical = numerical_products(_evaluation(part), slot.array, u, options.eps)
    analytical = push(part.function, part.inputs, slots, slot, u, chosen, options.grad_dtypes)
    for number, (k, a) in enumerate(zip(chosen, analytical, strict=True)):
        if not _close(a, numerical[k], options.atol * weights(u, None), options.rtol):
            whole = numerical_jacobians(_evaluation(part), slot.array, options.eps)[k]
            slow = columns(part.function, part.inputs, [slot], [k], False)[0][0]
            shown = _message(text, "computed with forward mode ", number, slot, numerical[k], a)
            raise GradcheckError(shown + _in_full(whole, slow))


def _evaluation(part: Part) -> Callable[[], list[Array]]:
    return lambda: [values_of(o) for o in outputs_of(part.function(*part.inputs))]


def _close(a: Any, n: Any, atol: float, rtol: float) -> bool:
    return bool(np.allclose(a, n, rtol=rtol, atol=atol))


def _check_constant(part: Part, slots: Sequence[Slot], options: Options) -> None:
    """No output requires gradients: then moving the inputs must change nothing."""
    for slot in slots:
        if any(np.any(j != 0) for j in numerical_jacobians(_evaluation(part), slot.array, options.eps)):
            raise GradcheckError("Numerical gradient for function expected to be zero")


def _check_repeatable(first: Sequence[Array], second: Sequence[Array], options: Options) -> None:
    for a, b in zip(first, second, strict=True):
        if not np.allclose(a, b, rtol=0, atol=options.nondet_tol, equal_nan=True):
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                f"gives different values (largest difference {worst_place(a, b)[0]:.3e}), although analytical gradient "
                f"matches numerical gradient. The tolerance for nondeterminism was {options.nondet_tol}."
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


# -- promises of reverse mode


class UndefinedGrad(Node):
    """A node through which no gradient arrives: what is before it was not used."""

    def run(self, grads: list[Any], wanted: tuple[bool, ...]) -> Sequence[Any]:
        return [None] * len(self.edges)


def undefined_grad(t: Tensor) -> Tensor:
    """The tensor itself, whose gradient gets lost on the way back."""
    node = UndefinedGrad()
    node.edges, node.out_metas = [edge_of(t)], [meta_of(t)]
    made = alias(t)
    made._requires_grad, made._grad_fn = True, node
    return made


def _check_zero_in_zero_out(func: Function, inputs: tuple[Any, ...]) -> None:
    """The gradients are linear in what comes in: exactly zero for zeros."""
    slots = _slots(inputs)
    outputs = differentiable(func(*inputs))
    if not outputs:
        return
    found = grad(outputs, [s.tensor for s in slots], [zeros_like(o) for o in outputs], allow_unused=True)
    for slot, g in zip(slots, found, strict=True):
        if g is None:
            continue
        if np.any(values_of(g) != 0):
            raise GradcheckError("backward not multiplied by grad_output")
        expected, got = type_of(slot.tensor), type_of(g)
        for what, same in (
            ("type", expected.dtype is got.dtype),
            ("device", expected.device == got.device),
            ("size", expected.shape == got.shape),
        ):
            if not same:
                raise GradcheckError(f"grad is incorrect {what}: {got} for an input of {expected}")


def _check_missing_gradients(func: Function, inputs: tuple[Any, ...]) -> None:
    """Backward must cope with outputs whose gradients never arrive: all of them, and each one alone."""
    count = len(differentiable(func(*inputs)))
    cases = [set(range(count)), *({k} for k in range(count) if count > 1)]
    for missing in cases if count else []:
        outputs = differentiable(func(*inputs))
        _check_missing(inputs, [undefined_grad(o) if k in missing else o for k, o in enumerate(outputs)])


def _check_missing(inputs: tuple[Any, ...], outputs: Sequence[Tensor]) -> None:
    advice = "pass check_undefined_grad=False if it need not support this"
    try:
        found = grad(
            outputs, [s.tensor for s in _slots(inputs)], [zeros_like(o) for o in outputs], allow_unused=True
        )  # fmt: skip
    except RuntimeError as error:
        warnings.warn(f"backward fails when gradients of outputs are undefined; {advice}", UserWarning, stacklevel=6)
        raise GradcheckError(
            f"Expected backward function to handle undefined output grads, but it raised: {error}"
        ) from error
    if any(g is not None and np.any(values_of(g) != 0) for g in found):
        warnings.warn(f"backward makes gradients out of undefined ones; {advice}", UserWarning, stacklevel=6)
        raise GradcheckError(
            "Expected all input grads to be undefined or zero when all output grads are undefined or zero."
        )


def _check_batched_gradients(func: Function, inputs: tuple[Any, ...]) -> None:
    """The VJPs of two vectors at once are the VJPs one by one."""
    chosen = [s.tensor for s in _slots(inputs)]
    for number, output in enumerate(differentiable(func(*inputs))):

        def vjp(v: Tensor, output: Tensor = output) -> list[Tensor]:
            found = grad(output, chosen, v, retain_graph=True, allow_unused=True)
            return [zeros_like(x) if g is None else g for g, x in zip(found, chosen, strict=True)]

        vectors = [randn_like(output.detach()) for _ in range(2)]
        _compare_batched(vjp, vectors, lambda k, number=number: f"For output {number} and input {k}")


def _compare_batched(
    function: Callable[[Tensor], Sequence[Tensor]], vectors: Sequence[Tensor], what: Callable[[int], str]
) -> None:
    failed = "gradcheck or gradgradcheck failed while testing batched gradient computation."
    expected = [stack(list(found)) for found in zip(*[function(v) for v in vectors], strict=True)]
    try:
        got = over_batch(function, [stack(list(vectors))])
    except RuntimeError as error:
        raise GradcheckError(f"While computing batched gradients, got: {error}\n\n{failed}") from error
    for k, (e, g) in enumerate(zip(expected, got, strict=True)):
        assert g is not None
        if not np.allclose(values_of(g), values_of(e), rtol=1e-5, atol=1e-8):
            raise GradcheckError(f"\n{what(k)}:\n\n{failed}\n\nGot:\n{g}\n\nExpected:\n{e}\n")


# -- promises of forward mode


def _check_missing_tangents(part: Part) -> None:
    """An input without a tangent counts like one whose tangent is zero."""
    slots = _slots(part.inputs)
    draw = np.random.default_rng(_SEED)
    directions = [unit_vector(draw, s.array.size).reshape(s.array.shape) for s in slots]
    for slot in slots:
        with duals(part.inputs, slots) as (arguments, tangents):
            for tangent, direction in zip(tangents, directions, strict=True):
                tangent.copy_(wrap(direction))
            found = []
            for stand_in in (forward_ad.make_dual(slot.tensor.detach(), zeros_like(slot.tensor)), slot.tensor.detach()):
                arguments[slot.place] = stand_in
                outputs = outputs_of(part.function(*arguments))
                found.append([forward_ad.unpack_dual(o).tangent for o in outputs])
            for number, (zero, missing) in enumerate(zip(*found, strict=True)):
                if zero is None or missing is None:
                    continue
                if not np.allclose(values_of(zero), values_of(missing)):
                    raise GradcheckError(
                        f"Mismatch in tangent values for output with index: {number} when input: {slot.tensor} has an "
                        f"undefined tangent value. Got: {zero} but expected: {missing}"
                    )


def _check_batched_tangents(func: Function, inputs: tuple[Any, ...]) -> None:
    """The JVPs of two tangents at once are the JVPs one by one."""
    for slot in _slots(inputs):

        def jvp(tangent: Tensor, slot: Slot = slot) -> list[Tensor]:
            with forward_ad.dual_level():
                arguments = list(inputs)
                arguments[slot.place] = forward_ad.make_dual(slot.tensor.detach(), tangent)
                found = [forward_ad.unpack_dual(o) for o in outputs_of(func(*arguments))]
            return [zeros_like(p) if t is None else t for p, t in found]

        vectors = [randn_like(slot.tensor.detach()) for _ in range(2)]
        _compare_batched(jvp, vectors, lambda k, place=slot.place: f"For input {place} and output {k}")


# -- second derivatives


def gradient_of(func: Function, inputs: Any, grad_outputs: Any, strided: bool) -> tuple[Function, tuple[Any, ...]]:
    """The gradient as a function of the inputs and the vectors, and these as its arguments."""
    given = as_tuple(inputs)
    if grad_outputs is None:
        with grad_mode(True):
            vectors = tuple(_random_like(o, strided) for o in differentiable(func(*given)))
    else:
        vectors = as_tuple(grad_outputs)
    count = len(vectors)
    wanted = [k for k, x in enumerate(given) if isinstance(x, Tensor) and x.requires_grad]
    wanted_vectors = {k for k, v in enumerate(vectors) if v is not None and v.requires_grad}

    def gradient(*arguments: Any) -> tuple[Tensor, ...]:
        split = len(arguments) - count
        xs = [_requiring(x) if k in wanted else x for k, x in enumerate(arguments[:split])]
        bars = [_requiring(v) if k in wanted_vectors else v for k, v in enumerate(arguments[split:])]
        outputs = differentiable(func(*xs))
        found = grad(outputs, [xs[k] for k in wanted], bars, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradient, (*given, *vectors)


def _requiring(t: Tensor) -> Tensor:
    """The tensor, requiring gradients: forward mode is checked on detached inputs."""
    return t if t.requires_grad else t.requires_grad_()  # type: ignore[no-any-return]


def _random_like(output: Tensor, strided: bool) -> Tensor:
    """Uniform random numbers in [-1, 1) in the type of an output; with gaps in memory where that is asked for."""
    t = type_of(output)
    if not t.dtype.is_differentiable:
        raise DifferentiationError(f"gradgradcheck: an output of {t.dtype} has no gradient", {"output": output})
    shape = (*t.shape[:-1], t.shape[-1] * 2) if strided and t.ndim else t.shape
    parts = [rand(*shape, dtype=t.dtype.to_real() if t.dtype.is_complex else t.dtype) * 2 - 1 for _ in range(2)]
    values = complex_from(*parts) if t.dtype.is_complex else parts[0]
    drawn = values[..., ::2] if shape != t.shape else values
    return drawn.detach().requires_grad_()  # type: ignore[no-any-return]
