"""The gradient as a function of inputs and vectors: what ``gradgradcheck`` gives to ``gradcheck``."""

from __future__ import annotations

from typing import Any

from autojit.autograd.derivatives import grad
from autojit.core.errors import DifferentiationError
from autojit.functions.elementwise import complex as complex_from
from autojit.functions.random import rand
from autojit.gradcheck.analytic_jacobians import Function, as_tuple, differentiable
from autojit.tensor import Tensor
from autojit.tensor.state import grad_mode
from autojit.tensor.tensor import type_of


def gradient_of(func: Function, inputs: Any, grad_outputs: Any, strided: bool) -> tuple[Function, tuple[Any, ...]]:
    """The gradient as a function of the inputs and the vectors, and these as its arguments."""
    given = as_tuple(inputs)
    vectors: tuple[Any, ...]  # None where a gradient is left out
    if grad_outputs is None:
        with grad_mode(True):
            vectors = tuple(_random_like(o, strided) for o in differentiable(func(*given)))
    else:
        vectors = as_tuple(grad_outputs)
    count = len(vectors)
    wanted = [k for k, x in enumerate(given) if isinstance(x, Tensor) and x.requires_grad]
    wanted_vectors = {k for k, v in enumerate(vectors) if isinstance(v, Tensor) and v.requires_grad}

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
    return t if t.requires_grad else t.requires_grad_()


def _random_like(output: Tensor, strided: bool) -> Tensor:
    """Uniform random numbers in [-1, 1) in the type of an output; with gaps in memory where that is asked for."""
    t = type_of(output)
    if not t.dtype.is_differentiable:
        raise DifferentiationError(f"gradgradcheck: an output of {t.dtype} has no gradient", {"output": output})
    shape = (*t.shape[:-1], t.shape[-1] * 2) if strided and t.ndim else t.shape
    real = t.dtype.to_real() if t.dtype.is_complex else t.dtype
    parts = [rand(*shape, dtype=real, device=t.device) * 2 - 1 for _ in range(2)]
    values = complex_from(*parts) if t.dtype.is_complex else parts[0]
    drawn = values[..., ::2] if shape != t.shape else values
    return drawn.detach().requires_grad_()
