"""What a derivative must keep besides being right: zero for zero, undefined gradients, batches, missing tangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autojit.autograd import forward_ad
from autojit.autograd.derivatives import grad
from autojit.core.user_warnings import warn
from autojit.dispatch.batch_layer import over_batch
from autojit.functions.factories import zeros_like
from autojit.functions.random import randn_like
from autojit.functions.shape import stack
from autojit.gradcheck.analytic_jacobians import Function, Slot, differentiable, duals, is_sparse, outputs_of, values_of
from autojit.gradcheck.errors import GradcheckError
from autojit.gradcheck.finite_differences import unit_vector
from autojit.history.recording import edge_of, meta_of
from autojit.tensor import Tensor
from autojit.tensor.node import Node
from autojit.tensor.tensor import alias, type_of, wrap


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


def check_zero_in_zero_out(func: Function, inputs: tuple[Any, ...], slots: Sequence[Slot]) -> None:
    """The gradients are linear in what comes in: exactly zero for zeros."""
    outputs = differentiable(func(*inputs))
    if not outputs:
        return
    found = grad(outputs, [s.tensor for s in slots], [zeros_like(o) for o in outputs], allow_unused=True)
    for slot, g in zip(slots, found, strict=True):
        if g is None:
            continue
        _check_layout(slot.tensor, g)
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


def _check_layout(x: Tensor, g: Tensor) -> None:
    """A sparse gradient belongs to a sparse input of the same kind."""
    if not is_sparse(g):
        return
    if g.layout is not x.layout:
        raise GradcheckError(f"grad is incorrect layout ({g.layout} is not {x.layout})")
    for what, got, expected in (
        ("sparse_dim", g.sparse_dim(), x.sparse_dim()),
        ("dense_dim", g.dense_dim(), x.dense_dim()),
    ):
        if got != expected:
            kind = g.layout.name.removesuffix("_coo")
            raise GradcheckError(f"grad is {kind} tensor, but has incorrect {what} {got}, expected {expected}")


def check_missing_gradients(func: Function, inputs: tuple[Any, ...], slots: Sequence[Slot]) -> None:
    """Backward must cope with outputs whose gradients never arrive: all of them, and each one alone."""
    count = len(differentiable(func(*inputs)))
    cases = [set(range(count)), *({k} for k in range(count) if count > 1)]
    for missing in cases if count else []:
        outputs = differentiable(func(*inputs))
        _check_missing(slots, [undefined_grad(o) if k in missing else o for k, o in enumerate(outputs)])


def _check_missing(slots: Sequence[Slot], outputs: Sequence[Tensor]) -> None:
    try:
        found = grad(
            outputs, [s.tensor for s in slots], [zeros_like(o) for o in outputs], allow_unused=True
        )  # fmt: skip
    except RuntimeError as error:
        _warn_of_undefined("fails when gradients of outputs are undefined")
        raise GradcheckError(
            f"Expected backward function to handle undefined output grads, but it raised: {error}"
        ) from error
    if any(g is not None and np.any(values_of(g) != 0) for g in found):
        _warn_of_undefined("makes gradients out of undefined ones")
        raise GradcheckError(
            "Expected all input grads to be undefined or zero when all output grads are undefined or zero."
        )


def _warn_of_undefined(what: str) -> None:
    warn(
        "Backwards compatibility: New undefined gradient support checking feature is enabled by default. Here backward "
        f"{what}; pass check_undefined_grad=False if it need not cope with them.",
        UserWarning,
    )


def check_batched_gradients(func: Function, inputs: tuple[Any, ...], slots: Sequence[Slot]) -> None:
    """The VJPs of two vectors at once are the VJPs one by one."""
    chosen = [s.tensor for s in slots]
    for number, output in enumerate(differentiable(func(*inputs))):

        def vjp(v: Tensor, output: Tensor = output) -> list[Tensor]:
            found = grad(output, chosen, v, retain_graph=True, allow_unused=True)
            return [
                zeros_like(x) if g is None else g.to_dense() if is_sparse(g) else g
                for g, x in zip(found, chosen, strict=True)
            ]

        vectors = [randn_like(output.detach()) for _ in range(2)]
        _compare_batched(vjp, vectors, f"For output {number} and input")


def _compare_batched(function: Callable[[Tensor], Sequence[Tensor]], vectors: Sequence[Tensor], what: str) -> None:
    failed = "gradcheck or gradgradcheck failed while testing batched gradient computation."
    expected = [stack(list(found)) for found in zip(*[function(v) for v in vectors], strict=True)]
    try:
        got = over_batch(function, [stack(list(vectors))], "refused")
    except RuntimeError as error:
        raise GradcheckError(f"While computing batched gradients, got: {error}\n\n{failed}") from error
    for k, (e, g) in enumerate(zip(expected, got, strict=True)):
        assert g is not None
        if not np.allclose(values_of(g), values_of(e), rtol=1e-5, atol=1e-8):
            raise GradcheckError(f"\n{what} {k}:\n\n{failed}\n\nGot:\n{g}\n\nExpected:\n{e}\n")


# -- promises of forward mode


def check_missing_tangents(function: Function, inputs: tuple[Any, ...], slots: Sequence[Slot]) -> None:
    """An input without a tangent counts like one whose tangent is zero."""
    draw = np.random.default_rng(0)
    directions = [unit_vector(draw, s.array.size).reshape(s.array.shape) for s in slots]
    for slot in slots:
        with duals(inputs, slots) as (arguments, tangents):
            for tangent, direction in zip(tangents, directions, strict=True):
                tangent.copy_(wrap(direction))
            found = []
            for stand_in in (forward_ad.make_dual(slot.tensor.detach(), zeros_like(slot.tensor)), slot.tensor.detach()):
                arguments[slot.place] = stand_in
                outputs = outputs_of(function(*arguments))
                found.append([forward_ad.unpack_dual(o).tangent for o in outputs])
            for number, (zero, missing) in enumerate(zip(*found, strict=True)):
                if zero is None or missing is None:
                    continue
                if not np.allclose(values_of(zero), values_of(missing)):
                    raise GradcheckError(
                        f"Mismatch in tangent values for output with index: {number} when input: {slot.tensor} has an "
                        f"undefined tangent value. Got: {zero} but expected: {missing}"
                    )


def check_batched_tangents(func: Function, inputs: tuple[Any, ...], slots: Sequence[Slot]) -> None:
    """The JVPs of two tangents at once are the JVPs one by one."""
    for slot in slots:

        def jvp(tangent: Tensor, slot: Slot = slot) -> list[Tensor]:
            with forward_ad.dual_level():
                arguments = list(inputs)
                arguments[slot.place] = forward_ad.make_dual(slot.tensor.detach(), tangent)
                found = [forward_ad.unpack_dual(o) for o in outputs_of(func(*arguments))]
            return [zeros_like(p) if t is None else t for p, t in found]

        vectors = [randn_like(slot.tensor.detach()) for _ in range(2)]
        _compare_batched(jvp, vectors, f"For input {slot.place} and output")
